"""The embedded broker: idempotent, transactional, back with its data after kill -9, and gone without a trace."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, ResourceType

from tally.base.errors import TallyError
from tally.base.settings import settings
from tally.embedded.broker import down, pidfile, up
from tally.embedded.broker_files import is_free
from tally.host import lock, process

pytestmark = pytest.mark.timeout(240)


def read_all(bootstrap: str, *, isolation: str = "read_committed", seconds: float = 10.0) -> list[str]:
    """Every value of partition 0, up to its end."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "test",
            "enable.auto.commit": False,
            "isolation.level": isolation,
            "enable.partition.eof": True,
        }
    )
    consumer.assign([TopicPartition("things", 0, 0)])
    found, deadline = [], time.monotonic() + seconds
    while time.monotonic() < deadline:
        message = consumer.poll(1.0)
        if message is not None:
            if message.error():
                break
            found.append(message.value().decode())
    consumer.close()
    return found


def send(bootstrap: str, *values: str) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "acks": "all"})
    for value in values:
        producer.produce("things", value, partition=0)
    assert producer.flush(20) == 0


def processes_of(home: Path) -> list[psutil.Process]:
    found = []
    for candidate in psutil.process_iter():
        try:
            if str(home) in " ".join(candidate.cmdline()) and candidate.pid != os.getpid():
                found.append(candidate)
        except psutil.Error:
            pass
    return found


def test_up_twice_is_one_broker_and_down_leaves_nothing(own_home: Path) -> None:
    first, second = up(), up()
    assert (first.started, second.started) == (True, False)
    assert (first.pid, first.port, first.topics) == (second.pid, second.port, ["things"])
    assert settings().bootstrap() == first.bootstrap
    assert [found.pid for found in processes_of(own_home)] == [first.pid]

    assert down() == ["broker"]
    assert processes_of(own_home) == []
    assert first.port and is_free(first.port)
    assert not settings().broker_file.exists()
    assert down() == []


def test_topics_are_made_with_the_brokers_clock_and_retention(own_home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TALLY_KAFKA_RETENTION_HOURS", "5")
    admin = AdminClient({"bootstrap.servers": up().bootstrap})
    assert len(admin.list_topics("things", timeout=10).topics["things"].partitions) == 4
    resource = ConfigResource(ResourceType.TOPIC, "things")
    config = admin.describe_configs([resource])[resource].result(timeout=10)
    assert config["message.timestamp.type"].value == "LogAppendTime"
    assert config["retention.ms"].value == str(5 * 3_600_000)


def test_transactions_commit_and_abort_on_one_broker(own_home: Path) -> None:
    bootstrap = up().bootstrap
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": "test"})
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce("things", "aborted", partition=0)
    producer.flush(20)
    producer.abort_transaction(20)
    producer.begin_transaction()
    producer.produce("things", "committed", partition=0)
    producer.commit_transaction(20)
    assert read_all(bootstrap) == ["committed"]
    assert read_all(bootstrap, isolation="read_uncommitted") == ["aborted", "committed"]


def test_kill_9_then_up_has_the_data_and_the_port_again(own_home: Path) -> None:
    before = up()
    send(before.bootstrap, "a", "b")
    assert before.pid
    os.kill(before.pid, signal.SIGKILL)
    after = up()
    assert after.started and after.pid != before.pid
    assert after.port == before.port
    assert read_all(after.bootstrap) == ["a", "b"]


def test_down_after_kill_9_leaves_no_stale_address(own_home: Path) -> None:
    state = up()
    assert state.pid
    os.kill(state.pid, signal.SIGKILL)
    psutil.wait_procs([psutil.Process(state.pid)], timeout=10)
    assert down() == []
    with pytest.raises(TallyError, match="tally up"):
        settings().bootstrap()


def test_a_busy_configured_port_is_an_error_that_names_port_and_setting(
    own_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        monkeypatch.setenv("TALLY_KAFKA_PORT", str(port))
        with pytest.raises(TallyError) as refused:
            up()
    assert str(port) in str(refused.value)
    assert refused.value.field == "TALLY_KAFKA_PORT"
    assert processes_of(own_home) == []


def test_a_busy_port_of_last_time_gives_way_to_a_free_one_and_says_so(own_home: Path) -> None:
    before = up()
    send(before.bootstrap, "kept")
    down()
    with socket.socket() as other:
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        other.bind(("127.0.0.1", before.port))
        other.listen()
        after = up()
    assert after.port != before.port
    assert after.note and str(before.port) in after.note and str(after.port) in after.note
    assert read_all(after.bootstrap) == ["kept"]


def test_a_broker_that_cannot_start_shows_its_own_last_words(own_home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TALLY_KAFKA_HEAP", "1")
    with pytest.raises(TallyError, match=r"Too small (maximum|initial) heap"):
        up()
    assert processes_of(own_home) == []
    assert not pidfile(settings()).exists()


def test_a_damaged_store_is_told_by_the_log(own_home: Path) -> None:
    up()
    down()
    (own_home / "kafka" / "data" / "meta.properties").write_text("version=1\ncluster.id=another\nnode.id=7\n")
    with pytest.raises(TallyError, match=r"node id"):
        up()
    assert processes_of(own_home) == []


def test_down_ends_who_holds_a_lock_of_this_home(own_home: Path) -> None:
    code = (
        "import sys, time; from pathlib import Path; from tally.host import lock; "
        "held = lock.hold(Path(sys.argv[1])); print('held', flush=True); time.sleep(300)"
    )
    path = own_home / "run" / "stream-tally-x.lock"
    other = subprocess.Popen([sys.executable, "-c", code, str(path)], stdout=subprocess.PIPE, text=True)
    try:
        assert other.stdout and other.stdout.readline() == "held\n"
        with lock.hold(own_home / "run" / "mine.lock"):
            assert down() == [f"process {other.pid}, which held stream-tally-x"]
        assert not psutil.pid_exists(other.pid) and not lock.is_held(path)
        assert down() == []
    finally:
        other.kill()
        other.wait()


def test_a_stale_pid_that_is_somebody_elses_is_not_touched(own_home: Path) -> None:
    bystander = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    try:
        created = psutil.Process(bystander.pid).create_time()
        process.write_json(pidfile(settings()), {"pid": bystander.pid, "created": created - 3600, "port": 1})
        assert down() == []
        assert bystander.poll() is None
    finally:
        bystander.kill()
        bystander.wait(10)


def test_down_stops_what_else_has_a_pid_file_with_all_its_children(own_home: Path) -> None:
    program = (
        "import subprocess, sys; subprocess.run([sys.executable, '-c', 'import time; time.sleep(60)', sys.argv[1]])"
    )
    file = own_home / "run" / "driver.json"
    command = [sys.executable, "-c", program, str(own_home)]
    leader = process.start(command, own_home / "logs" / "driver.log", file)
    orphaned = own_home / "run" / "orphaned.json"
    other = process.start(command, own_home / "logs" / "orphaned.log", orphaned)
    deadline = time.monotonic() + 20
    while len(processes_of(own_home)) < 4 and time.monotonic() < deadline:
        time.sleep(0.1)
    assert len(processes_of(own_home)) == 4
    os.kill(other.pid, signal.SIGKILL)  # its child lives on

    assert down() == ["driver", "orphaned"]
    assert processes_of(own_home) == []
    assert process.ended(leader)
    assert not file.exists() and not orphaned.exists()


def test_the_command_prints_one_json_document(own_home: Path) -> None:
    def tally(*arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-c", "from tally.cli import main; main()", *arguments],
            capture_output=True,
            text=True,
            timeout=400,
            check=False,
        )

    ran = tally("up", "--json")
    document = json.loads(ran.stdout)
    assert ran.returncode == 0
    assert document["bootstrap"] == settings().bootstrap() == f"127.0.0.1:{document['port']}"
    assert document["topics"] == ["things"]
    assert json.loads(tally("down", "--json").stdout) == {"stopped": ["broker"]}
    assert processes_of(own_home) == []


def test_the_sessions_broker_is_there(broker: str) -> None:
    topics = AdminClient({"bootstrap.servers": broker}).list_topics(timeout=10).topics
    assert {"rides", "payments"} <= set(topics)

"""The producer against a real broker: the truth files say exactly what the topics hold."""

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from contextlib import suppress
from datetime import timedelta
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaException, TopicPartition

from tally.base.errors import TallyError
from tally.demo.events import DUPLICATE, PAYMENTS, RIDES
from tally.demo.produce import Order, produce
from tally.demo.progress import Progress
from tally.demo.truth import Sent, TruthFile, read_truth
from tally.sources.client import librdkafka

Place = tuple[int, int]


@pytest.fixture
def empty_home(broker: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home whose producer has sent nothing, on the session's broker."""
    monkeypatch.setenv("TALLY_KAFKA", broker)
    monkeypatch.setenv("TALLY_HOME", str(tmp_path))
    return tmp_path


def ends(topic: str) -> dict[int, int]:
    consumer = Consumer(librdkafka() | {"group.id": "ends"})
    parts = consumer.list_topics(topic, timeout=10).topics[topic].partitions
    for _ in range(50):  # a topic that was made a moment ago may still be looking for its leaders
        with suppress(KafkaException):
            found = {part: consumer.get_watermark_offsets(TopicPartition(topic, part), timeout=10)[1] for part in parts}
            break
        time.sleep(0.2)
    consumer.close()
    return found


def read(topic: str, since: dict[int, int]) -> dict[Place, tuple[str, str]]:
    """Key and value of every record after these offsets, by partition and offset."""
    consumer = Consumer(librdkafka() | {"group.id": "read", "enable.auto.commit": False})
    consumer.assign([TopicPartition(topic, part, offset) for part, offset in since.items()])
    want, found = sum(ends(topic).values()) - sum(since.values()), {}
    while len(found) < want:
        batch = consumer.consume(10_000, timeout=10)
        assert batch, f"{len(found)} of {want} records of {topic}"
        found.update({(m.partition(), m.offset()): (m.key().decode(), m.value().decode()) for m in batch})
    consumer.close()
    return found


def truth(home: Path, topic: str) -> list[Sent]:
    return list(read_truth(home / "truth" / f"{topic}.csv"))


def check(home: Path, topic: str, since: dict[int, int]) -> list[Sent]:
    """Every record of the topic has one line of truth that fits it, and the other way round."""
    lines, held = truth(home, topic), read(topic, since)
    assert len(lines) == len(held) and {(line.partition, line.offset) for line in lines} == set(held)
    first: dict[int, str] = {}
    name, clock = ("ride_id", "pickup") if topic == RIDES else ("payment_id", "paid_at")
    for line in sorted(lines, key=lambda line: line.offset):
        key, value = held[line.partition, line.offset]
        assert key == (str(line.id) if topic == RIDES else line.fields["ride_id"])
        if line.kind == DUPLICATE:
            assert first[line.id] == value
        else:
            assert line.id not in first, "an id was used twice"
            first[line.id] = value
        if line.kind != "bad:not_json":
            event = json.loads(value)
            assert event[name] == line.id and event.get(clock) == line.event_time_ms
    return lines


def test_truth_is_what_the_topics_hold_over_two_runs(empty_home: Path) -> None:
    before = {topic: ends(topic) for topic in (RIDES, PAYMENTS)}
    first = produce(Order(rate=20, seed=5, past=timedelta(hours=1), lasting=timedelta(0)))
    second = produce(Order(rate=20, seed=5, past=timedelta(hours=1), lasting=timedelta(seconds=2)))
    assert first["rides"] == 72_000 and 20 < second["rides"] < 20 * 60, "the second only fills the gap and goes on"
    for topic in before:
        lines = check(empty_home, topic, before[topic])
        kinds = Counter(line.kind for line in lines)
        assert kinds == Counter(first["sent"][topic]) + Counter(second["sent"][topic])
    ids = {line.id for line in truth(empty_home, RIDES)}
    assert ids == set(range(1, second["next_ride_id"]))


def test_a_stop_by_signal_loses_no_truth_and_live_events_wait_for_their_time(empty_home: Path) -> None:
    before = {topic: ends(topic) for topic in (RIDES, PAYMENTS)}
    tally = str(Path(sys.executable).with_name("tally"))
    command = [tally, "produce", "rides", "--rate", "200", "--past", "1 minute", "--json"]
    began = time.time()
    process = subprocess.Popen(command, stdout=subprocess.PIPE, env=os.environ.copy(), text=True)
    while time.time() < began + 60 and not (empty_home / "truth" / "rides.csv").exists():
        time.sleep(0.1)
    time.sleep(4)
    process.send_signal(signal.SIGTERM)
    out, _ = process.communicate(timeout=60)
    report, elapsed = json.loads(out), time.time() - began
    assert process.returncode == 0
    assert 12_000 + 200 * 2 < report["rides"] < 12_000 + 200 * (elapsed + 1)
    assert sum(report["sent"][RIDES].values()) == len(check(empty_home, RIDES, before[RIDES]))
    check(empty_home, PAYMENTS, before[PAYMENTS])


def test_a_count_is_exact_and_needs_no_waiting(empty_home: Path) -> None:
    before = ends(RIDES)
    report = produce(Order(rate=10, seed=1, count=5_000, payments=False))
    assert report["rides"] == 5_000 and report["seconds"] < 60
    assert len({line.id for line in check(empty_home, RIDES, before)}) == 5_000
    assert not (empty_home / "truth" / "payments.csv").exists()


def test_a_killed_producers_ids_are_not_used_again(tmp_path: Path) -> None:
    killed = Progress(tmp_path)
    killed.note(1, None)
    killed.note(40_000, 123)
    killed.release()
    assert Progress(tmp_path).next_id > 40_000


def test_two_producers_do_not_share_a_home(tmp_path: Path) -> None:
    held = Progress(tmp_path)
    with pytest.raises(TallyError, match="another producer"):
        Progress(tmp_path)
    held.release()


def test_a_missing_topic_is_a_clear_error(empty_home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tally.demo.produce.PAYMENTS", "nowhere")
    with pytest.raises(TallyError, match=r"no topic nowhere .*\n.*tally up"):
        produce(Order(count=1))


def test_a_torn_line_is_not_read_and_not_appended_to(tmp_path: Path) -> None:
    file = TruthFile(tmp_path, RIDES)
    file.lines.append("1,0,0,good,5,1,2,3,4.00\n")
    file.close()
    with open(file.path, "a") as torn:
        torn.write("2,0,1,go")
    assert [line.id for line in read_truth(file.path)] == [1]
    again = TruthFile(tmp_path, RIDES)
    again.lines.append("3,0,2,bad:no_time,,1,2,3,4.00\n")
    again.close()
    assert [(line.id, line.event_time_ms, line.fields["cab_id"]) for line in read_truth(file.path)] == [
        (1, 5, "3"),
        (3, None, "3"),
    ]


@pytest.mark.parametrize(
    "order", [Order(rate=0), Order(count=-1), Order(strict=True), Order(csv=Path("x"), past=timedelta(1))]
)
def test_an_order_that_cannot_be_meant_is_refused(order: Order) -> None:
    with pytest.raises(TallyError):
        order.check()

"""One KRaft broker per TALLY_HOME: started once, found again after a crash, stopped without a trace.

Its data, settings and pid are in <home>/kafka, its log is <home>/logs/kafka.log. Where TALLY_KAFKA names a cluster,
nothing is started, and only the topics are made there.
"""

from __future__ import annotations

import socket
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

import psutil

from tally.base.errors import TallyError
from tally.base.settings import Settings, settings
from tally.embedded.broker_files import (
    broker_command,
    cluster_id,
    format_storage,
    free_port,
    is_free,
    last_port,
    write_configuration,
)
from tally.embedded.topics import create_topics
from tally.host import lock, process
from tally.host.waiting import until

# Seconds to answer: 4 s on an idle machine; recovery of a killed broker's log on a busy one took a few times that.
START_PATIENCE = 90.0
# Seconds for another `tally up` or `down` of this home to be over: a first start formats the storage, too.
TURN_PATIENCE = 240.0
DEFAULT_PORT = 9092


@dataclass(frozen=True, kw_only=True)
class Up:
    """What `tally up` found or did; `pid` and `port` are None for a cluster that is not ours."""

    bootstrap: str
    port: int | None
    pid: int | None
    topics: list[str]
    started: bool
    note: str | None = None

    def as_dict(self) -> dict[str, object]:
        return asdict(self)


def up() -> Up:
    """Have a broker that answers and the catalogue's topics on it; doing so again changes nothing."""
    conf = settings()
    if conf.kafka:
        return Up(bootstrap=conf.kafka, port=None, pid=None, topics=create_topics(conf.kafka), started=False)
    note = None
    with _only_one(conf):
        found = _find(conf)
        if found:
            running, port = found
        else:
            running, port, note = _start(conf)
        bootstrap = f"127.0.0.1:{port}"
        started = running.create_time()
        process.write_json(conf.broker_file, {"bootstrap": bootstrap, "pid": running.pid, "started": started})
    topics = create_topics(bootstrap)
    return Up(bootstrap=bootstrap, port=port, pid=running.pid, topics=topics, started=found is None, note=note)


def down() -> list[str]:
    """Stop all that runs for this home, the broker last, and return what was stopped; on a stopped home, []."""
    conf = settings()
    stopped = [file.stem for file in sorted((conf.home / "run").glob("*.json")) if process.stop(file)]
    stopped += stop_holders(conf.home / "run")
    with _only_one(conf):
        if process.stop(pidfile(conf)):
            stopped.append("broker")
        conf.broker_file.unlink(missing_ok=True)
    return stopped


def stop_holders(folder: Path) -> list[str]:
    """End who holds a lock of this home without a pid file, such as a `tally stream` in a terminal; never who asks."""
    mine = {psutil.Process().pid, *(parent.pid for parent in psutil.Process().parents())}
    stopped = []
    for path in sorted(folder.glob("*.lock")):
        found = lock.holder(path)
        if found is not None and found.pid not in mine:
            file = folder / f"holder-{found.pid}.json"
            process.write_json(file, process.identity(found))
            if process.stop(file):
                stopped.append(f"process {found.pid}, which held {path.stem}")
    return stopped


def pidfile(conf: Settings) -> Path:
    """The broker's {"pid", "created", "port"}: from the moment it is started, before it answers."""
    return conf.home / "kafka" / "process.json"


def log_file(conf: Settings) -> Path:
    return conf.home / "logs" / "kafka.log"


def _find(conf: Settings) -> tuple[psutil.Process, int] | None:
    """The broker that runs already, and its port; None also when it was just dying."""
    running = process.find(pidfile(conf))
    if not running:
        return None
    port = int(process.read_json(pidfile(conf))["port"])
    try:
        _wait_until_it_answers(conf, running, port, log_from=0)
    except TallyError:
        if not process.ended(running):
            raise
        return None
    return running, port


def _start(conf: Settings) -> tuple[psutil.Process, int, str | None]:
    """The broker, its port, and a note when that is not the usual one."""
    port, note = _choose_port(conf)
    folder, log = conf.home / "kafka", log_file(conf)
    command = broker_command(conf, folder)
    write_configuration(conf, folder, port=port, controller_port=free_port(), log=log)
    format_storage(conf, folder)
    log_from = log.stat().st_size if log.exists() else 0
    running = process.start(command, log, pidfile(conf), port=port)
    try:
        _wait_until_it_answers(conf, running, port, log_from=log_from)
    except BaseException:
        process.stop(pidfile(conf), patience=5.0)
        raise
    return running, port, note


def _choose_port(conf: Settings) -> tuple[int, str | None]:
    """The configured port or an error; else the port of last time, else 9092, else a free one, and a word on it."""
    if conf.kafka_port:
        if not is_free(conf.kafka_port):
            raise TallyError(
                f"port {conf.kafka_port} for the broker is in use",
                field="TALLY_KAFKA_PORT",
                cure="stop what listens there, set another port, or unset it to have a free one taken",
            )
        return conf.kafka_port, None
    wanted = last_port(conf.home / "kafka") or DEFAULT_PORT
    if is_free(wanted):
        return wanted, None
    port = free_port()
    return port, f"port {wanted} is in use, so the broker is on {port} (TALLY_KAFKA_PORT sets one)"


def _wait_until_it_answers(conf: Settings, running: psutil.Process, port: int, *, log_from: int) -> None:
    """Return once this very cluster answers on the port; a TallyError with the log's last lines when it will not."""
    from confluent_kafka import KafkaException
    from confluent_kafka.admin import AdminClient

    cluster = cluster_id(conf.home / "kafka")
    admin = AdminClient({"bootstrap.servers": f"127.0.0.1:{port}", "log_level": 0})

    def answers() -> bool:
        with suppress(KafkaException, OSError), socket.create_connection(("127.0.0.1", port), timeout=1.0):
            return bool(admin.list_topics(timeout=2.0).cluster_id == cluster)
        return False

    over = until(lambda: process.ended(running) or answers(), seconds=START_PATIENCE, every=0.1)
    if over and not process.ended(running):
        return
    what = "ended while starting" if process.ended(running) else f"did not answer in {START_PATIENCE:.0f} s"
    raise TallyError(
        f"the broker {what}; the last lines of {log_file(conf)}:\n{process.tail(log_file(conf), since=log_from)}",
        field="TALLY_KAFKA_HEAP" if "OutOfMemory" in process.tail(log_file(conf), since=log_from) else None,
        cure="mend what the log names, then `tally up` again; `tally check --setup` says what this machine lacks",
    )


def _only_one(conf: Settings) -> lock.Lock:
    """Hold this home's broker lock: two `tally up` at once start one broker, and the second finds it."""
    return lock.hold(conf.home / "kafka" / "up.lock", wait=TURN_PATIENCE)

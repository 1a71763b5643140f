"""The embedded broker's command, ports and configuration files, and nothing that runs longer than a moment."""

from __future__ import annotations

import os
import re
import socket
import subprocess
from base64 import urlsafe_b64encode
from pathlib import Path
from random import SystemRandom
from uuid import uuid4

from tally.base.errors import TallyError
from tally.base.settings import Settings
from tally.embedded.java import java

# Bytes of the log cleaner's one buffer. Kafka's default, 128 MiB, is allocated at start and fails silently in a small
# heap; 4 MiB holds some 170,000 keys a pass, which costs compacted topics nothing at this size.
CLEANER_BUFFER = 4 * 1024 * 1024

# Below what Linux and macOS give to connections: one of theirs that is free now may be somebody's some seconds later,
# when the broker is to listen there.
PORTS = range(20_000, 32_000)

SERVER = """\
# Written anew by each `tally up`.
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller_port}
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller_port}
advertised.listeners=PLAINTEXT://127.0.0.1:{port}
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT
controller.listener.names=CONTROLLER
inter.broker.listener.name=PLAINTEXT
log.dirs={data}
log.retention.hours={retention_hours}
log.cleaner.dedupe.buffer.size={cleaner_buffer}
# a mistyped topic is an error, not a new topic
auto.create.topics.enable=false
# one broker: what Kafka keeps three times by default is kept once, and transactions need no second in-sync replica
default.replication.factor=1
min.insync.replicas=1
offsets.topic.replication.factor=1
offsets.topic.num.partitions=4
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
transaction.state.log.num.partitions=4
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
group.initial.rebalance.delay.ms=0
num.network.threads=2
num.io.threads=4
"""

LOGGING = """\
status=warn
appender.file.type=RollingFile
appender.file.name=file
appender.file.fileName={log}
appender.file.filePattern={log}.%i
appender.file.layout.type=PatternLayout
appender.file.layout.pattern=%d{{ISO8601}} %p %c{{1.}}: %m%n
appender.file.policies.type=Policies
appender.file.policies.size.type=SizeBasedTriggeringPolicy
appender.file.policies.size.size=10MB
appender.file.strategy.type=DefaultRolloverStrategy
appender.file.strategy.max=3
rootLogger.level=info
rootLogger.appenderRef.file.ref=file
"""


def broker_command(conf: Settings, folder: Path) -> list[str]:
    """The command that runs the broker of this folder in the foreground."""
    return [
        java(),
        f"-Xmx{conf.kafka_heap}",
        "-XX:+ExitOnOutOfMemoryError",
        "-Djava.awt.headless=true",
        *shared_classes(conf),
        *conf.kafka_java_options.split(),
        f"-Dlog4j2.configurationFile={folder / 'log4j2.properties'}",
        "-cp",
        _class_path(conf),
        "kafka.Kafka",
        str(folder / "server.properties"),
    ]


def write_configuration(conf: Settings, folder: Path, *, port: int, controller_port: int, log: Path) -> None:
    """Write server.properties and log4j2.properties; the port is remembered in the former."""
    folder.mkdir(parents=True, exist_ok=True)
    log.parent.mkdir(parents=True, exist_ok=True)
    server = SERVER.format(
        port=port,
        controller_port=controller_port,
        data=folder / "data",
        retention_hours=conf.kafka_retention_hours,
        cleaner_buffer=CLEANER_BUFFER,
    )
    (folder / "server.properties").write_text(server)
    (folder / "log4j2.properties").write_text(LOGGING.format(log=log))


def format_storage(conf: Settings, folder: Path) -> None:
    """Give the data folder its cluster id, once; one that has it is left as it is."""
    if cluster_id(folder) is None:
        _format(conf, folder, new_cluster_id())


def new_cluster_id() -> str:
    """An id as Kafka makes them: sixteen random bytes in letters, of which the first is no dash."""
    made = "-"
    while made.startswith("-"):
        made = urlsafe_b64encode(uuid4().bytes).decode().rstrip("=")
    return made


def cluster_id(folder: Path) -> str | None:
    """The cluster id that the storage was formatted with; None before that."""
    return _written(folder / "data" / "meta.properties", r"^cluster\.id=(\S+)")


def last_port(folder: Path) -> int | None:
    """The port this folder's broker last had."""
    port = _written(folder / "server.properties", r"^listeners=PLAINTEXT://127\.0\.0\.1:(\d+)")
    return int(port) if port else None


def is_free(port: int) -> bool:
    """Whether a broker could listen there now."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def free_port() -> int:
    """A port that nothing has just now, and that no connection is given before it is used."""
    chance = SystemRandom()  # tests put the other one back to the same seed, in each of their processes
    return next(port for port in chance.sample(PORTS, k=len(PORTS)) if is_free(port))


def _written(file: Path, pattern: str) -> str | None:
    try:
        found = re.search(pattern, file.read_text(), re.MULTILINE)
    except OSError:
        return None
    return found[1] if found else None


def shared_classes(conf: Settings) -> list[str]:
    """Use the archive of parsed classes that `make setup` made; one that does not fit is passed over in silence."""
    archive = class_archive(conf)
    return [f"-XX:SharedArchiveFile={archive}", "-Xlog:cds=off", "-Xlog:class+path=off"] if archive.exists() else []


def class_archive(conf: Settings) -> Path:
    return conf.jars / "kafka.jsa"


def _class_path(conf: Settings) -> str:
    jars = sorted((conf.jars / "kafka").glob("*.jar"))  # in one order: the archive is of this class path
    if not any(jar.name.startswith("kafka_") for jar in jars):
        raise TallyError(f"no broker jars in {conf.jars / 'kafka'}", field="TALLY_JARS", cure="make setup")
    return os.pathsep.join(map(str, jars))


def _format(conf: Settings, folder: Path, cluster: str) -> None:
    command = [
        java(), "-Xmx64m", "-XX:TieredStopAtLevel=1", *shared_classes(conf),
        f"-Dlog4j2.configurationFile={folder / 'log4j2.properties'}", "-cp", _class_path(conf),
        "kafka.tools.StorageTool", "format", "-t", cluster, "-c", str(folder / "server.properties"),
    ]  # fmt: skip
    ran = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    if ran.returncode:
        said = (ran.stderr or ran.stdout).strip()
        raise TallyError(
            f"Kafka's storage could not be made in {folder / 'data'}: {said}",
            field="TALLY_HOME",
            cure="a writable TALLY_HOME with free disk, and Java 17 (`tally check --setup`)",
        )

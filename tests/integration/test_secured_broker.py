"""A broker that speaks SASL_SSL only to those who know the password: every client of Tally gets in by one file."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import oracle
import pytest
import world as worlds
from pyspark.sql import SparkSession
from world import World

from tally.base.errors import TallyError
from tally.base.settings import Settings, settings
from tally.embedded.broker_files import broker_command, format_storage, free_port, write_configuration
from tally.embedded.java import java
from tally.host import process
from tally.sources import kafka

NAME = "tumbling_u"
PASSWORD = 'a "quoted" \\ secret'
SECURE = """
listeners=PLAINTEXT://127.0.0.1:{plain},CONTROLLER://127.0.0.1:{controller},SECURE://127.0.0.1:{port}
advertised.listeners=PLAINTEXT://127.0.0.1:{plain},SECURE://127.0.0.1:{port}
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,SECURE:SASL_SSL
listener.name.secure.sasl.enabled.mechanisms=PLAIN
listener.name.secure.plain.sasl.jaas.config={module} required user_tally="{password}";
listener.name.secure.ssl.keystore.type=PKCS12
listener.name.secure.ssl.keystore.location={store}
listener.name.secure.ssl.keystore.password=changeit
"""


def keytool(*arguments: str) -> str:
    tool = str(Path(java()).with_name("keytool"))
    return subprocess.run([tool, *arguments], check=True, capture_output=True, text=True).stdout


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("secured")


@pytest.fixture(scope="module")
def certificate(folder: Path) -> str:
    """A key of the broker's own, in its keystore; the certificate as PEM."""
    store = ("-keystore", str(folder / "broker.p12"), "-storepass", "changeit", "-alias", "broker")
    keytool(
        "-genkeypair", *store, "-keyalg", "RSA", "-dname", "CN=broker", "-ext", "san=ip:127.0.0.1", "-validity", "2"
    )
    return keytool("-exportcert", "-rfc", *store)


@pytest.fixture(scope="module")
def ports(home: Path, folder: Path, certificate: str) -> Iterator[tuple[int, int]]:
    """A broker with a plain and a secured port."""
    conf = Settings(kafka_heap="256m", jars=settings().jars)  # type: ignore[call-arg]
    plain, controller, port = free_port(), free_port(), free_port()
    write_configuration(conf, folder, port=plain, controller_port=controller, log=folder / "kafka.log")
    file = folder / "server.properties"
    lines = [line for line in file.read_text().splitlines() if "listeners=" not in line and ".map=" not in line]
    password = PASSWORD.replace("\\", "\\\\").replace('"', '\\"').replace("\\", "\\\\")  # for JAAS, then for properties
    more = SECURE.format(
        plain=plain, controller=controller, port=port, store=folder / "broker.p12", password=password,
        module="org.apache.kafka.common.security.plain.PlainLoginModule",
    )  # fmt: skip
    file.write_text("\n".join(lines) + more)
    format_storage(conf, folder)
    pidfile = folder / "process.json"
    process.start(broker_command(conf, folder), folder / "kafka.log", pidfile, port=port)
    try:
        yield plain, port
    finally:
        process.stop(pidfile, patience=5.0)


def client_file(folder: Path, certificate: str, **changes: str) -> str:
    known = {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "PLAIN",
        "sasl.username": "tally",
        "sasl.password": PASSWORD,
        "ssl.truststore.certificates": certificate.strip().replace("\n", "\\n"),
    }
    path = folder / f"client-{len(changes)}.properties"
    path.write_text("".join(f"{name}={value}\n" for name, value in {**known, **changes}.items()))
    return str(path)


@pytest.fixture
def world(
    folder: Path, ports: tuple[int, int], certificate: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> World:
    """The producer comes in by the plain port, all of Tally by the other one."""
    plain, port = ports
    made = worlds.make(tmp_path, f"{tmp_path.name}.", f"127.0.0.1:{plain}", monkeypatch, [NAME])
    monkeypatch.setenv("TALLY_KAFKA", f"127.0.0.1:{port}")
    monkeypatch.setenv("TALLY_KAFKA_PROPERTIES", client_file(folder, certificate))
    return made


def test_both_layers_read_from_it_and_agree(world: World, spark: SparkSession) -> None:
    world.produce(worlds.story(5, 60, world.prefix) + worlds.flush(world.prefix))
    world.stream()
    assert world.batch(NAME) == oracle.batch_rows(worlds.shape_of(NAME), world.truth(NAME))
    found = world.compare(NAME)
    assert found["windows"] > 10 and found["unexplained"] == 0


def test_a_wrong_password_is_told_and_not_waited_out(
    world: World, folder: Path, certificate: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    wrong = client_file(folder, certificate, **{"sasl.password": "guess"})
    monkeypatch.setenv("TALLY_KAFKA_PROPERTIES", wrong)
    with pytest.raises(TallyError, match="Kafka does not answer") as refused:
        kafka.end_offsets(world.topics(NAME)[0], patience=5.0)
    assert refused.value.cure and "guess" not in str(refused.value)

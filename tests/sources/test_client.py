"""One properties file configures every Kafka client, and nothing in it can run code or read files."""

from __future__ import annotations

from pathlib import Path

import pytest

from tally.base.errors import TallyError
from tally.sources.client import ALLOWED, checked, librdkafka, parse, spark_options

SECURE = """
# a cluster of somebody else's
security.protocol=SASL_SSL
sasl.mechanism = SCRAM-SHA-512
sasl.username=tally
sasl.password=a"b\\\\c;d
ssl.truststore.certificates=-----BEGIN CERTIFICATE-----\\n\\
    abc\\n\\
    -----END CERTIFICATE-----
"""


@pytest.fixture
def secure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "client.properties"
    path.write_text(SECURE)
    monkeypatch.setenv("TALLY_KAFKA_PROPERTIES", str(path))
    monkeypatch.setenv("TALLY_KAFKA", "kafka.example:9093")
    return path


def test_spark_reads_with_them(secure: Path) -> None:
    password = '"a\\"b' + "\\\\" * 2 + 'c;d"'
    module = "org.apache.kafka.common.security.scram.ScramLoginModule"
    assert spark_options() == {
        "kafka.bootstrap.servers": "kafka.example:9093",
        "kafka.isolation.level": "read_committed",
        "kafka.security.protocol": "SASL_SSL",
        "kafka.sasl.mechanism": "SCRAM-SHA-512",
        "kafka.sasl.jaas.config": f'{module} required username="tally" password={password};',
        "kafka.ssl.truststore.type": "PEM",
        "kafka.ssl.truststore.certificates": "-----BEGIN CERTIFICATE-----\nabc\n-----END CERTIFICATE-----",
    }


def test_librdkafka_does_with_them_what_spark_does(secure: Path) -> None:
    assert librdkafka() == {
        "bootstrap.servers": "kafka.example:9093",
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.username": "tally",
        "sasl.password": 'a"b\\\\c;d',
        "ssl.ca.pem": "-----BEGIN CERTIFICATE-----\nabc\n-----END CERTIFICATE-----",
    }


def test_a_client_takes_every_name_that_is_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    from confluent_kafka.admin import AdminClient

    plain = {"client.id": "t", "client.rack": "a", "request.timeout.ms": "4000", "security.protocol": "PLAINTEXT"}
    assert set(plain) <= set(ALLOWED)
    taken = {ALLOWED[name]: value for name, value in checked(plain).items()}
    AdminClient({"bootstrap.servers": "localhost:1", "log_level": "0"} | taken)


@pytest.mark.parametrize(
    "name",
    [
        "sasl.jaas.config",
        "ssl.truststore.location",
        "ssl.keystore.location",
        "interceptor.classes",
        "sasl.login.callback.handler.class",
        "sasl.client.callback.handler.class",
        "sasl.login.class",
        "key.deserializer",
        "value.deserializer",
        "metric.reporters",
        "ssl.engine.factory.class",
        "security.providers",
        "sasl.oauthbearer.token.endpoint.url",
        "plugin.library.paths",
        "ssl.ca.location",
        "bootstrap.servers",
        "group.id",
        "isolation.level",
        "Security.Protocol",
        "partition.assignment.strategy",
        "sasl.kerberos.kinit.cmd",
    ],
)
def test_what_runs_code_or_reads_files_is_refused_by_name(name: str) -> None:
    with pytest.raises(TallyError, match=name.replace(".", r"\.")) as refused:
        checked({name: "x"})
    assert refused.value.field == "TALLY_KAFKA_PROPERTIES" and refused.value.cure


@pytest.mark.parametrize(
    ("text", "field"),
    [
        ("security.protocol=TLS", "security.protocol"),
        ("security.protocol=SASL_SSL\nsasl.mechanism=GSSAPI", "sasl.mechanism"),
        ("security.protocol=SASL_SSL\nsasl.mechanism=PLAIN\nsasl.password=x", "sasl.username"),
        ("security.protocol=SASL_SSL\nsasl.mechanism=PLAIN\nsasl.username=x", "sasl.password"),
    ],
)
def test_what_cannot_work_is_refused_before_a_client_tries(text: str, field: str) -> None:
    with pytest.raises(TallyError) as refused:
        checked(parse(text))
    assert refused.value.field == field and refused.value.cure


def test_a_file_that_is_not_there_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TALLY_KAFKA_PROPERTIES", str(tmp_path / "none"))
    monkeypatch.setenv("TALLY_KAFKA", "kafka.example:9093")
    with pytest.raises(TallyError, match="cannot read"):
        spark_options()

"""How every Kafka client of Tally is configured: one properties file, nothing in it that runs code or reads files."""

from __future__ import annotations

import re
from pathlib import Path

from tally.base.errors import TallyError
from tally.base.settings import settings

# What a properties file may say, and what librdkafka calls it. PEM material stands in the file itself.
ALLOWED = {
    "security.protocol": "security.protocol",
    "sasl.mechanism": "sasl.mechanism",
    "sasl.username": "sasl.username",
    "sasl.password": "sasl.password",
    "ssl.truststore.certificates": "ssl.ca.pem",
    "ssl.keystore.certificate.chain": "ssl.certificate.pem",
    "ssl.keystore.key": "ssl.key.pem",
    "ssl.endpoint.identification.algorithm": "ssl.endpoint.identification.algorithm",
    "client.id": "client.id",
    "client.rack": "client.rack",
    "request.timeout.ms": "socket.timeout.ms",
}
MODULES = {
    "PLAIN": "org.apache.kafka.common.security.plain.PlainLoginModule",
    "SCRAM-SHA-256": "org.apache.kafka.common.security.scram.ScramLoginModule",
    "SCRAM-SHA-512": "org.apache.kafka.common.security.scram.ScramLoginModule",
}
PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")


def properties() -> dict[str, str]:
    """The checked client properties; empty where no file is configured."""
    path = settings().kafka_properties
    if path is None:
        return {}
    try:
        text = Path(path).read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise TallyError(
            f"cannot read {path}: {getattr(error, 'strerror', '') or error}",
            field="TALLY_KAFKA_PROPERTIES",
            cure="name a file of key=value lines in UTF-8",
        ) from None
    return checked(parse(text))


def parse(text: str) -> dict[str, str]:
    """key=value lines; a backslash at the end of a line joins it with the next, and \\n in a value is a line break."""
    found = {}
    for line in re.sub(r"\\\r?\n\s*", "", text).splitlines():
        if line.strip() and line.lstrip()[0] not in "#!":
            name, _, value = line.partition("=")
            found[name.strip()] = value.strip().replace("\\n", "\n")
    return found


def checked(found: dict[str, str]) -> dict[str, str]:
    """The properties, or a refusal that names the one that has no place here."""
    for name in found:
        if name not in ALLOWED:
            raise TallyError(
                f"{name!r} is not taken from a properties file (options that run code or read files never are)",
                field="TALLY_KAFKA_PROPERTIES",
                cure=f"use only: {', '.join(ALLOWED)}; certificates and keys stand in it as PEM text",
            )
    protocol = found.get("security.protocol", "PLAINTEXT")
    if protocol not in PROTOCOLS:
        raise TallyError(
            f"{protocol!r} is no protocol", field="security.protocol", cure=f"one of: {', '.join(PROTOCOLS)}"
        )
    if protocol.startswith("SASL"):
        mechanism = found.get("sasl.mechanism", "")
        if mechanism not in MODULES:
            raise TallyError(
                f"{mechanism!r} is no mechanism", field="sasl.mechanism", cure=f"one of: {', '.join(MODULES)}"
            )
        for name in ("sasl.username", "sasl.password"):
            if not found.get(name):
                raise TallyError("is missing", field=name, cure=f"{protocol} needs it")
    return found


def librdkafka() -> dict[str, str]:
    """Configuration of a confluent-kafka client."""
    return {"bootstrap.servers": settings().bootstrap()} | {ALLOWED[k]: v for k, v in properties().items()}


def spark_options() -> dict[str, str]:
    """Options of Spark's Kafka source; only committed records are read."""
    found = properties()
    options = {k: v for k, v in found.items() if k not in ("sasl.username", "sasl.password")}
    if "sasl.username" in found:
        user, secret = (quoted(found[f"sasl.{part}"]) for part in ("username", "password"))
        options["sasl.jaas.config"] = f"{MODULES[found['sasl.mechanism']]} required username={user} password={secret};"
    if "ssl.truststore.certificates" in found:
        options["ssl.truststore.type"] = "PEM"
    if "ssl.keystore.key" in found:
        options["ssl.keystore.type"] = "PEM"
    options |= {"bootstrap.servers": settings().bootstrap(), "isolation.level": "read_committed"}
    return {f"kafka.{name}": value for name, value in options.items()}


def quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'

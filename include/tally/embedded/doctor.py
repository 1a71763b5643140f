"""What this machine lacks for Tally, and for each lack the exact command; nothing is installed or changed."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from xml.etree import ElementTree

import psutil
from packaging.requirements import Requirement

from tally.base.errors import TallyError
from tally.base.settings import REPO, Settings, settings
from tally.embedded.broker import DEFAULT_PORT, pidfile
from tally.embedded.broker_files import is_free, last_port
from tally.embedded.java import WANTED, java, java_version
from tally.host import process

GIB = 2**30
DISK = 5 * GIB  # packages and jars take 1.4 GiB, a day of the demo's rides and tables the rest
MEMORY = 6 * GIB  # what the whole demo is built to fit
POM = {"m": "http://maven.apache.org/POM/4.0.0"}
POMS = {"spark": REPO / "spark" / "pom.xml", "kafka": REPO / "docker" / "kafka" / "pom.xml"}


@dataclass(frozen=True, kw_only=True)
class Finding:
    """One thing needed: what is there, and the command that gets it where it is not."""

    name: str
    ok: bool
    found: str
    cure: str | None = None


def examine() -> list[Finding]:
    """Every check, in the order in which one would mend what is missing."""
    conf = settings()
    return [_java(), _python(), _packages(), _maven(conf), *_jars(conf), *_ports(conf), _disk(conf), _memory()]


def pins(file: Path) -> Iterator[Requirement]:
    """The requirements of a file that hold on this Python and platform."""
    for line in file.read_text().splitlines():
        text = line.split("#")[0].strip()
        if text:
            requirement = Requirement(text)
            if requirement.marker is None or requirement.marker.evaluate():
                yield requirement


def astray(file: Path) -> list[str]:
    """Each package that is not installed at exactly the version this file pins, as a sentence."""
    wrong = []
    for requirement in pins(file):
        wanted = str(requirement.specifier).removeprefix("==")
        try:
            there = version(requirement.name)
        except PackageNotFoundError:
            there = "missing"
        if there != wanted:
            wrong.append(f"{requirement.name} is {there}, pinned {wanted}")
    return wrong


def jars_of(pom: Path) -> list[str]:
    """The jar files a pom names itself, in the versions it pins."""
    root = ElementTree.parse(pom).getroot()
    named = root.findall(".//m:dependency", POM)
    return [f"{item.findtext('m:artifactId', '', POM)}-{item.findtext('m:version', '', POM)}.jar" for item in named]


def _java() -> Finding:
    cure = "make setup, or: apt-get install openjdk-17-jre-headless (macOS: brew install openjdk@17)"
    try:
        command = java()
    except TallyError as error:
        return Finding(
            name="Java", ok=False, found=error.message, cure=error.cure if error.field == "JAVA_HOME" else cure
        )
    major = java_version(command)
    return Finding(name="Java", ok=major >= WANTED, found=f"{major or 'does not run'} ({command})", cure=cure)


def _python() -> Finding:
    found = ".".join(map(str, sys.version_info[:3]))
    return Finding(
        name="Python",
        ok=(3, 11) <= sys.version_info[:2] < (3, 14),
        found=found,
        cure="install Python 3.11, 3.12 or 3.13, remove .venv, then: make setup",
    )


def _packages() -> Finding:
    wrong = astray(REPO / "requirements.lock")
    found = "; ".join(wrong[:5]) + (f"; {len(wrong) - 5} more" if len(wrong) > 5 else "")
    return Finding(name="packages", ok=not wrong, found=found or "as pinned", cure="rm -f .venv/.done && make setup")


def _maven(conf: Settings) -> Finding:
    found = shutil.which("mvn")
    needed = not all(finding.ok for finding in _jars(conf))
    return Finding(
        name="Maven",
        ok=bool(found) or not needed,
        found=found or ("none" if needed else "none, and none needed: the jars are there"),
        cure="make setup, or: apt-get install maven (macOS: brew install maven)",
    )


def _jars(conf: Settings) -> Iterator[Finding]:
    for name, pom in POMS.items():
        folder = conf.jars / name
        missing = [jar for jar in jars_of(pom) if not (folder / jar).is_file()]
        found = f"{', '.join(missing)} not in {folder}" if missing else f"as pinned, in {folder}"
        yield Finding(name=f"jars of {name}", ok=not missing, found=found, cure="rm -f .jars/.done && make setup")


def _ports(conf: Settings) -> Iterator[Finding]:
    if not conf.kafka:
        yield _broker_port(conf)
    yield _airflow_port(conf)


def _airflow_port(conf: Settings) -> Finding:
    chosen = "TALLY_AIRFLOW_PORT" in os.environ
    busy = not is_free(conf.airflow_port) and not process.find(conf.home / "run" / "airflow.json")
    found = f"{conf.airflow_port} {'is in use by something else' if busy else 'is free or ours'}"
    return Finding(
        name="Airflow's port",
        ok=not (busy and chosen),
        found=found if chosen or not busy else f"{found}; a free one will be taken",
        cure=f"stop what listens on {conf.airflow_port}, set another TALLY_AIRFLOW_PORT, or unset it",
    )


def _broker_port(conf: Settings) -> Finding:
    port = conf.kafka_port or last_port(conf.home / "kafka") or DEFAULT_PORT
    if process.find(pidfile(conf)):
        return Finding(name="Kafka's port", ok=True, found="this home's broker runs")
    if is_free(port):
        return Finding(name="Kafka's port", ok=True, found=f"{port} is free")
    found = f"{port} is in use by something else"
    if not conf.kafka_port:
        return Finding(name="Kafka's port", ok=True, found=f"{found}; a free one will be taken")
    cure = f"stop what listens on {port}, set another TALLY_KAFKA_PORT, or unset it"
    return Finding(name="Kafka's port", ok=False, found=found, cure=cure)


def _disk(conf: Settings) -> Finding:
    folder = next(path for path in (conf.home, *conf.home.parents) if path.exists())
    free = psutil.disk_usage(str(folder)).free
    return Finding(
        name="disk",
        ok=free >= DISK,
        found=f"{free / GIB:.1f} GiB free at {folder}, {DISK / GIB:.0f} wanted",
        cure="free some, or set TALLY_HOME to a folder on a larger disk",
    )


def _memory() -> Finding:
    total = psutil.virtual_memory().total
    return Finding(
        name="memory",
        ok=total >= MEMORY,
        found=f"{total / GIB:.1f} GiB, {MEMORY / GIB:.0f} wanted",
        cure="a larger machine, or smaller TALLY_STREAM_MEMORY, TALLY_SPARK_MEMORY and TALLY_KAFKA_HEAP",
    )

"""What runs came to, as one JSON document: each run by itself, with its commit, its time and the machine's load."""

from __future__ import annotations

import json
import platform
import statistics
import subprocess
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from xml.etree import ElementTree

import psutil

from bench.peers.jars import SOURCE
from tally.base.settings import REPO

PACKAGES = ("pyspark", "delta-spark", "deltalake", "duckdb", "confluent-kafka")


@dataclass(frozen=True, kw_only=True)
class Run:
    """One engine's run of one case of a workload; `wrong` says what its answer lacks, and then no number counts."""

    workload: str
    case: str
    engine: str
    numbers: dict[str, float]
    wrong: str = ""
    others_cores: float = 0.0  # what other processes of the machine took meanwhile
    commit: str = ""
    at: str = ""


@dataclass(frozen=True, kw_only=True)
class Spread:
    """A number over the right runs of one engine and case."""

    median: float
    least: float
    most: float
    runs: int


@dataclass
class Results:
    """All runs that a page is made of."""

    machine: str = ""
    versions: dict[str, str] = field(default_factory=dict)
    runs: list[Run] = field(default_factory=list)

    def cases(self, workload: str) -> list[str]:
        return list(dict.fromkeys(run.case for run in self.runs if run.workload == workload))

    def engines(self, workload: str) -> list[str]:
        return list(dict.fromkeys(run.engine for run in self.runs if run.workload == workload))

    def of(self, workload: str, case: str, engine: str) -> list[Run]:
        asked = (workload, case, engine)
        return [run for run in self.runs if (run.workload, run.case, run.engine) == asked]

    def spread(self, workload: str, case: str, engine: str, number: str) -> Spread | None:
        """Over right answers only; None where there is none."""
        right = [run for run in self.of(workload, case, engine) if not run.wrong]
        values = [run.numbers[number] for run in right if number in run.numbers]
        if not values:
            return None
        return Spread(median=statistics.median(values), least=min(values), most=max(values), runs=len(values))

    def without(self, workloads: Iterable[str]) -> Results:
        """What stays when workloads are measured anew."""
        gone = set(workloads)
        return Results(self.machine, self.versions, [run for run in self.runs if run.workload not in gone])


def read(file: Path) -> Results:
    document = json.loads(file.read_text())
    return Results(document["machine"], document["versions"], [Run(**run) for run in document["runs"]])


def write(results: Results, file: Path) -> None:
    draft = file.with_suffix(".draft")
    draft.write_text(json.dumps(asdict(results), indent=1) + "\n")
    draft.replace(file)


def here() -> Results:
    """No runs yet, on this machine, with what is installed."""
    memory = round(psutil.virtual_memory().total / 2**30)
    machine = f"{psutil.cpu_count()} cores, {memory} GiB, {platform.system()}, Python {platform.python_version()}"
    pom = ElementTree.parse(SOURCE / "pom.xml").getroot()
    name = {"m": "http://maven.apache.org/POM/4.0.0"}
    versions = {package: version(package) for package in PACKAGES}
    versions["flink"] = pom.findtext(".//m:flink.version", "", name)
    for dependency in pom.findall(".//m:dependency", name):
        if dependency.findtext("m:groupId", "", name) == "org.apache.iceberg":
            versions["iceberg"] = dependency.findtext("m:version", "", name)
    return Results(machine, versions)


def stamped() -> dict[str, str]:
    """The commit that runs, and when; a plus where files differ from it."""

    def git(*words: str) -> str:
        return subprocess.run(["git", *words], cwd=REPO, capture_output=True, text=True, check=True).stdout.strip()

    changed = "+" if git("status", "--porcelain", "--untracked-files=no") else ""
    return {"commit": git("rev-parse", "--short=10", "HEAD") + changed, "at": datetime.now(UTC).strftime("%F %H:%M")}

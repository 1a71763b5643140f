"""Why the first pass does not speak: a type, a state or a machine for which it isn't proven to say what Spark says."""

from __future__ import annotations

import re
import shutil
from os import environ
from pathlib import Path
from typing import TYPE_CHECKING

from tally.base.settings import settings
from tally.catalog.fingerprint import MEANT

if TYPE_CHECKING:
    import duckdb

RELEASE = re.compile(r'^JAVA_VERSION="(?P<number>\d+)', re.MULTILINE)
# Java writes floating-point numbers otherwise from 19 on, and with %e from 21 on; 17 is what this is proven for.
JAVA = "17"


# Events that fit in memory beside all that is worked out from them: some 300 bytes each, 3 GB at the most.
MOST_ROWS = 10_000_000


class Unsure(Exception):
    """The first pass is not sure; its text says of what, for one line of the log."""


def check_surroundings() -> None:
    """Refuse where Spark would run under what may make its texts or its reading others than those known here."""
    run = settings()
    told = sorted(name for name in run.more_conf if name.startswith(MEANT))
    if told:
        raise Unsure(f"{told[0]} is set")
    if not run.spark_master.startswith("local"):
        raise Unsure("Spark's executors run elsewhere, under a Java that is not known here")
    if "://" in run.lake_root:
        raise Unsure("the lake is no folder")


def check_size(connection: duckdb.DuckDBPyConnection, table: str) -> None:
    """Refuse a table of more rows than fit in memory here."""
    ((rows,),) = connection.execute(f"SELECT count(*) FROM {table}").fetchall()
    if rows > MOST_ROWS:
        raise Unsure(f"{rows:,} rows are more than are looked at without Spark")


def check_java() -> None:
    """Refuse where another Java than the known one writes the floating-point numbers of a digest."""
    found = java()
    if found != JAVA:
        raise Unsure(f"Java {found or 'of no known version'} may write floating-point numbers otherwise than {JAVA}")


def java() -> str:
    """The version of the Java that Spark would start, by the words of its folder; "" where it has none."""
    home = environ.get("JAVA_HOME")
    binary = f"{home}/bin/java" if home else shutil.which("java")
    release = Path(binary).resolve().parents[1] / "release" if binary else None
    met = RELEASE.search(release.read_text()) if release and release.is_file() else None
    return met["number"] if met else ""

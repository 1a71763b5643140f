"""What a definition may take from outside the catalogue, and the cure for what it may not."""

from __future__ import annotations

import sys
from dataclasses import dataclass

# Modules of Python whose results follow from what they are given.
PURE = {
    "__future__", "abc", "base64", "binascii", "bisect", "calendar", "cmath", "collections", "contextlib", "copy",
    "csv", "dataclasses", "datetime", "decimal", "difflib", "enum", "fractions", "functools", "hashlib", "heapq",
    "hmac", "html", "ipaddress", "itertools", "json", "keyword", "math", "numbers", "operator", "re", "statistics",
    "string", "struct", "textwrap", "types", "typing", "unicodedata", "zlib", "zoneinfo", "typing_extensions",
}  # fmt: skip
# Installed with Tally, at one version for all who run it.
KNOWN = {"pyspark", "numpy", "pandas", "pyarrow"}
# Parts of those that read the clock, chance, files, or a session's state.
UNSTEADY = {
    "numpy.random", "numpy.load", "numpy.loadtxt", "numpy.fromfile", "numpy.genfromtxt", "numpy.memmap", "numpy.empty",
    "numpy.empty_like", "pandas.read_", "pandas.io", "pandas.util", "pandas.Timestamp.now", "pandas.Timestamp.today",
    "pandas.Timestamp.utcnow", "pyarrow.fs", "pyarrow.parquet", "pyarrow.csv", "pyarrow.dataset", "pyarrow.feather",
    "pyarrow.orc", "pyarrow.memory_map", "pyarrow.OSFile", "datetime.datetime.now", "datetime.datetime.utcnow",
    "datetime.datetime.today", "datetime.date.today", "statistics.NormalDist.samples",
    "pyspark.sql.functions.rand", "pyspark.sql.functions.uuid", "pyspark.sql.functions.shuffle",
    "pyspark.sql.functions.current_", "pyspark.sql.functions.now", "pyspark.sql.functions.localtimestamp",
    "pyspark.sql.functions.curdate", "pyspark.sql.functions.monotonically_increasing_id",
    "pyspark.sql.functions.spark_partition_id", "pyspark.sql.functions.input_file_", "pyspark.sql.SparkSession",
    "pyspark.sql.SQLContext", "pyspark.sql.session", "pyspark.SparkContext", "pyspark.SparkConf", "pyspark.context",
    "pyspark.SparkFiles", "pyspark.TaskContext", "pyspark.BarrierTaskContext", "pyspark.taskcontext", "pyspark.files",
    "requests", "httpx", "aiohttp", "urllib3", "pyspark.ml", "pyspark.mllib", "pyspark.sql.streaming",
}  # fmt: skip
WORDS = {
    "tally.topic", "tally.pipeline", "tally.tumbling", "tally.hopping", "tally.session", "tally.events", "tally",
}  # fmt: skip
AT_ANY_TIME = "use the event time; both layers must give the same rows at any time"
# A version, or the hash of one file, would say too little of a library: its own imports change without it. Refused, a
# definition's meaning stays in the catalogue, where the fingerprint sees all of it.
INSIDE = "put the code beside topics.py: a change of it is then a new version"


@dataclass(frozen=True, kw_only=True)
class Cure:
    """What to do instead; `hidden` where the fault is that its meaning cannot be seen."""

    text: str
    hidden: bool


def cure_for(full: str) -> Cure | None:
    """None for a dotted name that a definition may use."""
    first = full.split(".")[0]
    if first == "tally":
        fine = full in WORDS or full == "tally.*" or any(full.startswith(f"{word}.") for word in WORDS - {"tally"})
        return None if fine else Cure(text="use only the words of a definition: topic, pipeline, windows", hidden=False)
    if any(part_of(full, name) for name in UNSTEADY):
        return Cure(text=AT_ANY_TIME, hidden=False)
    if first in PURE | KNOWN:
        return None
    if first in sys.stdlib_module_names:
        return Cure(text=AT_ANY_TIME, hidden=False)
    return Cure(text=INSIDE, hidden=True)


def part_of(full: str, name: str) -> bool:
    """Whether a dotted name is another one or lies in it; a name that ends in `_` stands for all that begin so."""
    return full.startswith(name) if name.endswith("_") else full == name or full.startswith(f"{name}.")

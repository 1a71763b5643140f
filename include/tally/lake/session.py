"""One Spark session, configured in one place, the same for a driver, a batch job, the CLI and the tests."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tally.base.errors import TallyError
from tally.base.settings import REPO, Settings, settings
from tally.host import foreground

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

STREAMING = "org.apache.spark.sql.execution.streaming"
EXECUTOR_OPTIONS = ("-Duser.timezone=UTC", "-Dio.netty.tryReflectionSetAccessible=true")
JAVA_OPTIONS = (
    # Two cores: the parallel collector pauses less than G1 costs; 1 GiB heaps are small.
    "-XX:+UseParallelGC",
    # The default where both compilers run; with one alone it would be 48 MB, and code be thrown out and made again.
    "-XX:ReservedCodeCacheSize=240m",
    # Spark's classes take more than the 21 MB at which a JVM first looks for some to unload, and then ever again: each
    # look is a collection of the whole heap, with everything standing still.
    "-XX:MetaspaceSize=256m",
    # The second compiler is for what runs for minutes: twenty times its defaults. Four million records drained cost 6.2
    # CPU seconds a million instead of 8.1, and the tasks themselves no more; without it they cost twice as much.
    *(
        f"-XX:Tier4{what}Threshold={most}"
        for what, most in (
            ("Invocation", 100_000),
            ("MinInvocation", 12_000),
            ("Compile", 300_000),
            ("BackEdge", 800_000),
        )
    ),
    # A stream that is stopped matches a regular expression against its whole stack trace: 1 MB overflows.
    "-Xss4m",
    # A full heap fails in any thread, also in one whose end nobody sees: the JVM would limp on, or stand still. It ends
    # at once instead (exit code 3), and what was planned is replayed. The price: an allocation that Spark would have
    # survived, by spilling what it holds, ends the process too.
    "-XX:+ExitOnOutOfMemoryError",
    # The JVM leaves methods of more than 8,000 bytes to its interpreter; those that Spark writes for a topic of twenty
    # columns are larger, and would run at a third of the speed. The price is a longer compilation, beside the work.
    "-XX:-DontCompileHugeMethods",
    *EXECUTOR_OPTIONS,
    # Errors only, from the first line on: Spark's own level applies only once a session is there.
    f"-Dlog4j2.configurationFile={(REPO / 'spark' / 'log4j2.properties').as_uri()}",
)
# What compares plans more than it computes: nearly all of its code runs a few times, and the second compiler takes a
# third of the CPU. 1,400 scattered windows: 18.4 s and 24 CPU seconds instead of 21.8 and 37; two million events: no
# difference. Batches of many records and streams keep both: what these compute runs long enough.
BRIEF = "-XX:TieredStopAtLevel=1"
# Each error of Spark's is logged once more by PySpark, as JSON of several pages; Tally says it in a line.
ECHOES = ("DataFrameQueryContextLogger", "SQLQueryContextLogger")


def spark_conf(run: Settings, memory: str, *, brief: bool = False) -> dict[str, str]:
    """Everything that a Spark application of Tally is started with; a `brief` one plans more than it computes."""
    jars = sorted((run.jars / "spark").glob("*.jar"))
    if not jars:
        raise TallyError(f"no Spark jars in {run.jars / 'spark'}", field="TALLY_JARS", cure="make setup")
    java = [*JAVA_OPTIONS, *([BRIEF] if brief else []), *shared_classes(run), *run.java_options.split()]
    conf = {
        **libraries(run, jars),
        "spark.driver.memory": memory,
        "spark.driver.extraJavaOptions": " ".join(java),
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        # What a UI would show is gathered though there is none: a thousand plans in words, a hundred megabytes.
        "spark.ui.retainedJobs": "20",
        "spark.ui.retainedStages": "20",
        "spark.ui.retainedTasks": "200",
        "spark.sql.ui.retainedExecutions": "20",
        "spark.sql.ui.explainMode": "simple",
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": str(run.shuffle_partitions),
        # Parquet's INT96 has no statistics: with microseconds, files are skipped by window and event time.
        "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
        "spark.sql.execution.arrow.pyspark.enabled": "true",
        "spark.python.daemon.module": "tally.lake.worker",
        "spark.sql.warehouse.dir": str(run.home / "spark-warehouse"),
        # Delta: a small table's state fits one partition; 50 tasks a snapshot cost more than the batch.
        "spark.databricks.delta.snapshotPartitions": "1",
        # Parquet first looks at its buffers after a hundred rows, and then after as many as it thinks will fill a page:
        # a gigabyte, where records are 10 MB. Looked at after each tenth row, they cost no time that can be measured.
        **{f"spark.hadoop.parquet.{what}.size.row.check.min": "1" for what in ("page", "block")},
        **{f"spark.hadoop.parquet.{what}.size.row.check.max": "10" for what in ("page", "block")},
        # Who reads back what was put to disk keeps so many objects: a hundred by default, each some rows of 10 MB.
        "spark.serializer.objectStreamReset": "1",
        # Tasks that VACUUM lists files with. The default is 10,000, minutes of empty tasks for each small table; so few
        # make the listing of a table of a hundred thousand files some seconds slower.
        "spark.sql.sources.parallelPartitionDiscovery.parallelism": "8",
        # A restatement of a range without events is a commit too: that the range was stated is what it says.
        "spark.databricks.delta.skipRecordingEmptyCommits": "false",
        # A sum of the table's state beside each commit is one more file a commit, and a third of an append's time.
        "spark.databricks.delta.writeChecksumFile.enabled": "false",
        "spark.databricks.delta.properties.defaults.checkpointInterval": "50",
        "spark.databricks.delta.properties.defaults.enableDeletionVectors": "false",
        # The default of 100 is less than four streams use: each micro-batch would compile its code anew (5 s, not 2).
        "spark.sql.codegen.cache.maxEntries": "5000",
        # Told of authors' functions only: see `lines_told`.
        "spark.python.sql.dataFrameDebugging.enabled": "false",
        # Queries of one driver take turns task by task: first in, first out would let a heavy one starve the others.
        "spark.scheduler.mode": "FAIR",
        "spark.sql.streaming.stateStore.providerClass": f"{STREAMING}.state.HDFSBackedStateStoreProvider",
        "spark.sql.streaming.minBatchesToRetain": "20",
        "spark.sql.streaming.numRecentProgressUpdates": "20",
    }
    if not run.spark_master.startswith("local"):
        conf["spark.executor.extraJavaOptions"] = " ".join([*EXECUTOR_OPTIONS, *run.java_options.split()])
    else:
        conf["spark.driver.host"] = "127.0.0.1"
        conf["spark.driver.bindAddress"] = "127.0.0.1"
        # Nothing to adapt on two partitions, and each of its stages is planned and compiled again.
        conf["spark.sql.adaptive.enabled"] = "false"
    for kind, name in (("fs", "RawLocalFileSystem"), ("fs.AbstractFileSystem", "local.RawLocalFs")):
        # Without a hidden .crc file beside each local file: of a commit's four files one is left.
        conf[f"spark.hadoop.{kind}.file.impl"] = f"org.apache.hadoop.fs.{name}"
    if "://" not in run.checkpoint_root:
        # Create-if-absent becomes check-then-rename: 70 -> 19 ms a batch, safe only under our single-writer lock.
        conf["spark.sql.streaming.checkpointFileManagerClass"] = (
            f"{STREAMING}.checkpointing.FileSystemBasedCheckpointFileManager"
        )
    return {**conf, **run.more_conf}


def interpreting(spark: SparkSession) -> SparkSession:
    """Another session of the same application, which compiles nothing: it looks at each plan's expressions as it goes.

    The first run of sixteen plans took 2.4 s instead of 7.1, later ones over 700 events as long as compiled ones (once,
    by hand); each row takes longer. It is for a few rows, or for the first ones.
    """
    other = spark.newSession()
    other.conf.set("spark.sql.codegen.wholeStage", "false")
    other.conf.set("spark.sql.codegen.factoryMode", "NO_CODEGEN")
    return other


def libraries(run: Settings, jars: Sequence[Path]) -> dict[str, str]:
    """Delta and Kafka: on the class path where all runs in one JVM (its class archive holds them), else sent along."""
    if run.spark_master.startswith("local"):
        return {"spark.driver.extraClassPath": os.pathsep.join(map(str, jars))}
    return {"spark.jars": ",".join(map(str, jars))}


def shared_classes(run: Settings) -> list[str]:
    """Use the archive of parsed classes that `make setup` made; one that does not fit is passed over in silence."""
    archive = class_archive(run)
    if not run.spark_master.startswith("local"):
        return []  # it is of the class path on which the jars stand
    return [f"-XX:SharedArchiveFile={archive}", "-Xlog:cds=off", "-Xlog:class+path=off"] if archive.exists() else []


def class_archive(run: Settings) -> Path:
    return run.jars / "spark.jsa"


def session(
    app: str, *, memory: str | None = None, brief: bool = False, extra: Mapping[str, str] | None = None
) -> SparkSession:
    """The process's Spark session, started when there is none."""
    from pyspark.logger import PySparkLogger
    from pyspark.sql import SparkSession

    run = settings()
    in_utc()
    for name in ECHOES:
        PySparkLogger.getLogger(name).disabled = True
    logging.getLogger("py4j").setLevel(logging.ERROR)  # it tells of each connection that it closes, to the very end
    for name, value in python().items():
        os.environ.setdefault(name, value)
    builder = SparkSession.builder.appName(app)
    if "PYSPARK_GATEWAY_PORT" not in os.environ:  # spark-submit already chose the master
        builder = builder.master(run.spark_master)
    for name, value in {**spark_conf(run, memory or run.spark_memory, brief=brief), **(extra or {})}.items():
        builder = builder.config(name, value)
    foreground.log_in(run.home)
    chosen = signal.getsignal(signal.SIGINT)
    spark = builder.getOrCreate()
    if chosen is not signal.default_int_handler and threading.current_thread() is threading.main_thread():
        # Spark's own handler raises KeyboardInterrupt; a driver ends between two micro-batches instead.
        signal.signal(signal.SIGINT, chosen)
    spark.sparkContext.setLogLevel("ERROR")
    return spark


def python() -> dict[str, str]:
    """The environment in which Spark starts this very Python: by a script, if it may run, that has it import faster."""
    script = str(Path(__file__).with_name("python"))
    chosen = script if os.access(script, os.X_OK) else sys.executable
    return {"SPARKS_PYTHON": sys.executable, "PYSPARK_PYTHON": chosen, "PYSPARK_DRIVER_PYTHON": chosen}


def in_utc() -> None:
    """Let this process, and all that it starts, reckon in UTC.

    PySpark makes each time of an event a local one first: in a zone east of UTC the last day of the year 9999 would
    stop every job that meets it.
    """
    os.environ["TZ"] = "UTC"
    time.tzset()


def spark_home() -> Path:
    """Where the installed PySpark keeps its Spark, found without importing it."""
    spec = find_spec("pyspark")
    assert spec is not None and spec.origin is not None, "pyspark is not installed"
    return Path(spec.origin).parent


def exit_code(patience: float = 0.0) -> int | None:
    """How the JVM that this process started has ended: its exit code, a signal's below 0; None while it lives.

    One that dies closes its connections some time before it has gone: `patience` is how many seconds to wait for that.
    """
    from pyspark import SparkContext

    process = getattr(SparkContext._gateway, "proc", None)  # none where spark-submit's JVM started this process
    if process is None:
        return None
    with suppress(subprocess.TimeoutExpired):
        process.wait(patience)
    code: int | None = process.returncode
    return code


def answers() -> bool:
    """Whether this process's JVM still answers."""
    from py4j.protocol import Py4JError  # type: ignore[import-untyped]
    from pyspark import SparkContext

    jvm: Any = SparkContext._jvm
    try:
        return jvm is not None and jvm.java.lang.System.nanoTime() is not None
    except (Py4JError, OSError):
        return False


def jvm_pid(spark: SparkSession) -> int:
    """The process of the session's JVM."""
    jvm: Any = spark.sparkContext._jvm
    return int(jvm.java.lang.ProcessHandle.current().pid())

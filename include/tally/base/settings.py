"""Every setting, once, with its default: `TALLY_<NAME>` in the environment overrides it."""

from __future__ import annotations

import json
import os
import socket
from datetime import timedelta
from functools import cached_property, lru_cache
from ipaddress import ip_address
from pathlib import Path
from typing import Literal
from urllib.parse import urlsplit

from pydantic import Field, field_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

from tally.base.duration import parse_duration
from tally.base.errors import TallyError

REPO = Path(__file__).resolve().parents[3]


class Settings(BaseSettings):
    """One run's settings; all its state lives below `home`."""

    # A setting that is refused may be a secret: the traceback of a task does not repeat it.
    model_config = SettingsConfigDict(env_prefix="TALLY_", frozen=True, extra="ignore", hide_input_in_errors=True)

    home: Path = Field(REPO / "var", description="All state of a run: lake, checkpoints, control store, broker, logs.")
    catalog: Path = Field(REPO / "spark", description="The definitions: topics.py and pipelines/*.py.")
    jars: Path = Field(REPO / ".jars", description="Where `make setup` puts Spark's and the broker's jars.")
    kafka: str = Field("", description="Bootstrap servers of your cluster; empty: the embedded broker.")
    kafka_port: int = Field(
        0, ge=0, le=65535, description="Port of the embedded broker; 0: 9092, or a free one where that is busy."
    )
    kafka_heap: str = Field("384m", description="Heap of the embedded broker.")
    kafka_java_options: str = Field("", description="More options for the embedded broker's JVM, separated by spaces.")
    kafka_properties: Path | None = Field(
        None, description="Client properties (SASL_SSL and the like) for every client."
    )
    kafka_retention_hours: int = Field(168, ge=1, description="Retention of topics that Tally itself creates.")
    lake: str = Field("", description="Root of the Delta tables, a path or URI; empty: <home>/lake.")
    checkpoints: str = Field("", description="Root of the stream checkpoints; empty: <home>/checkpoints.")
    control: str = Field("", description="SQLAlchemy URL of the control store; empty: SQLite in <home>.")
    host: str = Field("", description="What this machine is called in the control store; empty: its host name.")
    spark_master: str = Field("local[2]", description="Spark's master.")
    spark_conf: str = Field("", description="More Spark configuration, name=value, separated by spaces; it wins.")
    spark_memory: str = Field("1g", description="Driver memory of a batch or reconcile job.")
    stream_memory: str = Field("1536m", description="Driver memory of a stream driver.")
    java_options: str = Field("", description="More options for Spark's JVMs, separated by spaces.")
    shuffle_partitions: int = Field(2, ge=1, description="Pinned into a stream's checkpoint by its first batch.")
    launcher: Literal["local", "standalone", "kubernetes", "yarn"] = Field(
        "local", description="Where a stream driver runs: here, here with executors elsewhere, or in a cluster."
    )
    image: str = Field("", description="On Kubernetes: the container image of driver and executors.")
    namespace: str = Field("default", description="On Kubernetes: where the driver's pod is.")
    service_account: str = Field("spark", description="On Kubernetes: by which the driver makes its executors.")
    queue: str = Field("", description="On YARN: the queue; empty: the cluster's default.")
    installed: str = Field(
        "/opt/tally",
        description="Where the image, or each node of a YARN cluster, has this repository after make setup.",
    )
    log_format: Literal["text", "json"] = Field("text", description="Lines of a stream driver's log: text, or JSON.")
    trigger_seconds: float = Field(1.0, ge=0, description="Pace of micro-batches.")
    shared: bool = Field(
        True, description="Whether new streams share one reading of their topic where their results add up from parts."
    )
    idle: str = Field("1 minute", description="On a shared stream: a partition so long silent holds nothing up.")
    open_groups: int = Field(500_000, ge=1, description="On a shared stream: most groups of a pipeline's open windows.")
    open_groups_in_all: int = Field(
        2_000_000, ge=1, description="The same of all pipelines of a shared stream together."
    )
    max_offsets_per_trigger: int = Field(2_000_000, ge=1, description="Most records one micro-batch takes.")
    max_offsets_per_ingest: int = Field(4_000_000, ge=1, description="Most records one archive commit takes.")
    archive_bytes: bool = Field(
        True, description="Whether the archive keeps each record's key and value; without them no contract can change."
    )
    skew: str = Field("5 minutes", description="How far past its record's broker time an event time may lie.")
    fold_after_batches: int = Field(
        100, ge=0, description="Micro-batches between two turns of the keeper: fold, trim, a short log; 0: never."
    )
    trim_after: str = Field("7 days", description="How long a sealed window's speed rows are kept.")
    settle: str = Field("0 seconds", description="Extra wait after a window closes before it may be sealed.")
    tolerance: float = Field(
        1e-9,
        description="Most that floating sums of the same events may differ by, as a share of their size.",
    )
    archive_every: str = Field(
        "*/15 * * * *", description="Cron of archive__<topic>, UTC; as often as the most frequent batch, or more often."
    )
    batch_every: str = Field(
        "0 * * * *",
        description="Cron of batch__<pipeline>, on data intervals, UTC; minute 0 is spread: each has one of its own.",
    )
    deadline: str = Field(
        "1 hour", description="A batch run not over so long after it was due is an incident; empty: never."
    )
    freshness: str = Field("15 minutes", description="A stream that is further behind is an incident; empty: never.")
    webhook: str = Field("", description="URL that each incident is posted to as JSON, when it opens and when it ends.")
    webhook_secret: str = Field("", description="What each post to the webhook is signed with; empty: it is not.")
    notifiers: str = Field("", description="Import paths of Airflow notifiers that are told too, separated by commas.")
    spark_pool: str = Field(
        "default_pool", description="Airflow pool that Spark tasks of archives and batches take a slot of."
    )
    backfill_pool: str = Field(
        "default_pool", description="The same of what can wait: backfills, reconciliations by hand, maintenance."
    )
    supervision_pool: str = Field("default_pool", description="Airflow pool that tasks of `streams` take a slot of.")
    keep_ledger: str = Field("7 days", description="How long a micro-batch has a row of its own in the control store.")
    vacuum_hours: int = Field(168, ge=168, description="Age of unneeded table files before `maintain` removes them.")
    audit_within: str = Field(
        "7 days", description="In which time `maintain`, once a day, has audited each sealed window again."
    )
    keep_reconciliations: str = Field("90 days", description="How long comparisons that hold no window are kept.")
    keep_airflow_runs: str = Field("30 days", description="How long the demo's own Airflow keeps its runs and logs.")
    airflow_port: int = Field(8080, ge=1, le=65535, description="Port of the Airflow UI in the demo.")

    @field_validator(
        "skew", "idle", "settle", "trim_after", "audit_within", "keep_reconciliations", "keep_airflow_runs"
    )
    @classmethod
    def a_duration(cls, text: str) -> str:
        try:
            parse_duration(text)
        except TallyError as error:
            raise ValueError(f"{error.message}: {error.cure}") from None
        return text

    @field_validator("deadline", "freshness")
    @classmethod
    def a_duration_or_none(cls, text: str) -> str:
        return cls.a_duration(text) if text.strip() else ""

    @field_validator("webhook")
    @classmethod
    def an_address(cls, text: str) -> str:
        parts = urlsplit(text)
        if text and (parts.scheme not in ("http", "https") or not parts.hostname):
            raise ValueError("not a URL: begin it with https://")
        if parts.scheme == "http" and not is_here(str(parts.hostname)):
            raise ValueError("incidents are not sent in clear to another machine: begin it with https://")
        return text

    @field_validator("spark_conf")
    @classmethod
    def pairs(cls, text: str) -> str:
        for word in text.split():
            if "=" not in word or not word.startswith("spark."):
                raise ValueError(f"{word} is no configuration: write spark.name=value")
            if word.startswith("spark.sql.session.timeZone="):
                raise ValueError("windows and tables are cut in UTC: leave spark.sql.session.timeZone out")
        return text

    def model_post_init(self, _: object) -> None:
        for name in ("home", "catalog", "jars"):
            object.__setattr__(self, name, Path(getattr(self, name)).expanduser().absolute())

    @cached_property
    def more_conf(self) -> dict[str, str]:
        return dict(word.split("=", 1) for word in self.spark_conf.split())

    @cached_property
    def lake_root(self) -> str:
        return self.lake.rstrip("/") or str(self.home / "lake")

    @cached_property
    def checkpoint_root(self) -> str:
        return self.checkpoints.rstrip("/") or str(self.home / "checkpoints")

    @cached_property
    def control_url(self) -> str:
        return self.control or f"sqlite:///{self.home / 'control.db'}"

    @cached_property
    def host_name(self) -> str:
        return self.host or socket.gethostname()

    @cached_property
    def run_deadline(self) -> timedelta | None:
        return parse_duration(self.deadline) if self.deadline else None

    @property
    def broker_file(self) -> Path:
        """Written by `tally up`: {"bootstrap": ..., "pid": ...} of this home's broker."""
        return self.home / "broker.json"

    def bootstrap(self) -> str:
        """Where Kafka is: the configured cluster, or this home's broker."""
        if self.kafka:
            return self.kafka
        try:
            return str(json.loads(self.broker_file.read_text())["bootstrap"])
        except FileNotFoundError:
            raise TallyError(
                f"no broker runs for {self.home}", field="TALLY_KAFKA", cure="tally up, or set TALLY_KAFKA"
            ) from None

    def table(self, *parts: str) -> str:
        """The path of a Delta table on the lake, e.g. table("speed", pipeline, version)."""
        return "/".join([self.lake_root, *parts])


def is_here(host: str) -> bool:
    """Whether a host in a URL is this machine."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def settings() -> Settings:
    """The settings as the environment now has them."""
    return settings_of(tuple(item for item in os.environ.items() if item[0].upper().startswith("TALLY_")))


@lru_cache(maxsize=16)
def settings_of(_: tuple[tuple[str, str], ...]) -> Settings:
    """Reading and checking them all takes milliseconds, and some are asked for once a window."""
    return Settings()  # type: ignore[call-arg]

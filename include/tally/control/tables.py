"""The control store's tables. Every time is milliseconds since the epoch, UTC; every document is JSON."""

from __future__ import annotations

from sqlalchemy import JSON, BigInteger, Boolean, Column, Float, Index, Integer, MetaData, String, Table, Text

metadata = MetaData()

# Which Kafka topic a name meant when it was first used: a recreated topic has another id.
topics = Table(
    "topics",
    metadata,
    Column("topic", String(249), primary_key=True),
    Column("topic_id", String(64), nullable=False),
    Column("seen_at", BigInteger, nullable=False),
)

# One row a micro-batch, copied from its Delta commit's userMetadata, which is the truth; of a topic's stream, one for
# all pipelines that share it.
ledger = Table(
    "ledger",
    metadata,
    Column("pipeline", String(128), primary_key=True),
    Column("version", String(32), primary_key=True),
    Column("generation", Integer, primary_key=True),
    Column("batch", BigInteger, primary_key=True),
    Column("ranges", JSON, nullable=False),  # {topic: {partition: [from, to)}}
    Column("late_watermark", BigInteger, nullable=False),  # what decided lateness in this batch
    Column("watermark", BigInteger, nullable=False),  # what closed windows in this batch
    Column("rows", BigInteger, nullable=False),
    Column("delta_version", BigInteger, nullable=False),
    Column("committed_at", BigInteger, nullable=False),
    Column("ids", String(8), nullable=False, server_default="held"),  # how copies of an id were told apart
    Column("first", BigInteger),  # of a row that stands for all up to it, which the lake keeps: the first of them
)

# How far a pipeline has come in its topic's stream; the newest commit of its table is the truth.
shares = Table(
    "shares",
    metadata,
    Column("pipeline", String(128), primary_key=True),
    Column("version", String(32), primary_key=True),
    Column("generation", Integer, primary_key=True, autoincrement=False),
    Column("topic", String(249), nullable=False),
    Column("batch", BigInteger, nullable=False),  # the newest micro-batch that its table holds
    Column("rows", BigInteger, nullable=False),  # that all of them wrote
    Column("delta_version", BigInteger, nullable=False),  # of the newest one
    Column("committed_at", BigInteger, nullable=False),  # of the newest one
    Column("since", BigInteger, nullable=False, server_default="0"),  # the first one in which it took part
)

# One row an archive commit: what its words say, as of the newest contract. The words are the truth.
ingests = Table(
    "ingests",
    metadata,
    Column("topic", String(249), primary_key=True),
    Column("seq", BigInteger, primary_key=True),
    Column("ranges", JSON, nullable=False),  # {partition: [from, to)}
    Column("archived", BigInteger, nullable=False),
    Column("quarantined", JSON, nullable=False),  # {reason: records}
    Column("gaps", BigInteger, nullable=False),  # offsets that hold no record, by Kafka's own count
    Column("delta_version", BigInteger, nullable=False),
    Column("committed_at", BigInteger, nullable=False),
)

# Up to which moment a topic's archive holds all that Kafka held then: its newest run that came to its end says so.
reached = Table(
    "reached",
    metadata,
    Column("topic", String(249), primary_key=True),
    Column("moment", BigInteger, nullable=False),
)

# One row a table and commit that holds records: what it wrote, copied from its words, which are the truth.
manifests = Table(
    "manifests",
    metadata,
    Column("topic", String(249), primary_key=True),
    Column("place", String(16), primary_key=True),  # archive | quarantine
    Column("era", Integer, primary_key=True),  # how often all was decoded again before
    Column("seq", BigInteger, primary_key=True),
    Column("baseline", Boolean, nullable=False),  # it holds the rows of all ingests up to this one
    Column("contract", String(16), nullable=False),
    Column("delta_version", BigInteger, nullable=False),
    Column("from_ms", BigInteger, nullable=False),  # between which times its cells lie
    Column("to_ms", BigInteger, nullable=False),
    Column("body", JSON, nullable=False),
)

# The state of each slot of a pipeline version that was ever judged.
seals = Table(
    "seals",
    metadata,
    Column("pipeline", String(128), primary_key=True),
    Column("version", String(32), primary_key=True),
    Column("slot_start", BigInteger, primary_key=True),
    Column("slot_end", BigInteger, nullable=False),
    Column("state", String(16), nullable=False),  # sealed | partial | held | unsealed
    Column("revision", Integer, nullable=False),
    Column("digest", String(80), nullable=False),  # of the batch's rows when it was judged
    Column("rows", BigInteger, nullable=False),
    Column("explained", BigInteger, nullable=False, default=0),  # events that one layer counts and the other doesn't
    Column("fault", Text, nullable=False, default=""),  # what an audit found; gone once it is judged again
    Column("reconciliation", Integer, nullable=False),
    Column("changed_at", BigInteger, nullable=False),
)

# Where each topic's archive begins: the partitions whose earlier records no layer ever read. The archive is the truth.
beginnings = Table(
    "beginnings",
    metadata,
    Column("topic", String(249), primary_key=True),
    Column("at", BigInteger, nullable=False),  # when the archive was begun
    Column("partitions", JSON, nullable=False),  # {partition: what is known of its first records}
)

# Where a person said that a pipeline's numbers begin; the newest row counts, the others are its history.
begins = Table(
    "begins",
    metadata,
    Column("id", Integer, primary_key=True, autoincrement=True),
    Column("pipeline", String(128), nullable=False),
    Column("from_ms", BigInteger, nullable=False),
    Column("by", String(128), nullable=False),
    Column("why", Text, nullable=False),
    Column("at", BigInteger, nullable=False),
)

# How far the audit of sealed windows is.
audits = Table(
    "audits",
    metadata,
    Column("pipeline", String(128), primary_key=True),
    Column("version", String(32), primary_key=True),
    Column("place", BigInteger, nullable=False, default=0),  # the slot start that the next part begins at
    Column("seen_version", BigInteger, nullable=False, default=-1),  # of the batch table: its commits are looked at
    Column("at", BigInteger, nullable=False, default=0),
)

# One row a comparison of a range of windows.
reconciliations = Table(
    "reconciliations",
    metadata,
    Column("id", Integer, primary_key=True, autoincrement=True),
    Column("pipeline", String(128), nullable=False),
    Column("version", String(32), nullable=False),
    Column("from_ms", BigInteger, nullable=False),
    Column("to_ms", BigInteger, nullable=False),
    Column("at", BigInteger, nullable=False),
    Column("summary", JSON, nullable=False),
    Column("slots", JSON, nullable=False),  # what each slot held when it was compared
    Column("verdict", String(16), nullable=False),  # comparing | compared | reconciled | held
    Column("data_docs", Text, nullable=False, default=""),
)

# The live state of each stream, written by its driver.
streams = Table(
    "streams",
    metadata,
    Column("pipeline", String(128), primary_key=True),
    Column("version", String(32), nullable=False),
    Column("generation", Integer, nullable=False, default=0),
    Column("app", String(128), nullable=False),
    Column("state", String(24), nullable=False),
    Column("reason", Text, nullable=False, default=""),
    Column("batch", BigInteger, nullable=False, default=-1),
    Column("watermark", BigInteger, nullable=False, default=0),
    Column("newest_window", BigInteger, nullable=False, default=0),
    Column("freshness", Float, nullable=False, default=-1.0),  # seconds from broker time to commit, newest batch
    Column("rows_per_second", Float, nullable=False, default=0.0),
    Column("took", Float, nullable=False, server_default="-1"),  # seconds, the newest micro-batch
    Column("progressed_at", BigInteger, nullable=False, default=0),
    Column("behind", BigInteger, nullable=False, default=-1),  # records that waited at the newest micro-batch
    Column("gaining", Float, nullable=False, default=0.0),  # records a second by which that number shrinks
    Column("failures", Integer, nullable=False, default=0),  # tries since the last micro-batch that ended
    Column("retry_at", BigInteger, nullable=False, default=0),
    Column("restarts", Integer, nullable=False, default=0),  # which wish for a restart the running query is from
    Column("updated_at", BigInteger, nullable=False),
)

# One row an app: the process that hosts its queries, written before it is spawned (pid 0) and again after.
drivers = Table(
    "drivers",
    metadata,
    Column("app", String(128), primary_key=True),
    Column("host", String(255), nullable=False),
    Column("pid", Integer, nullable=False),
    Column("created", Float, nullable=False),  # the process's start time, seconds: tells a reused pid
    Column("launched_at", BigInteger, nullable=False),
    Column("heartbeat_at", BigInteger, nullable=False),
    Column("log", Text, nullable=False, default=""),
    Column("launcher", String(16), nullable=False, default="local"),
    Column("job", Text, nullable=False, default=""),  # what another machine knows the process by
    Column("deaths", Integer, nullable=False, default=0),  # launches since the last one that every stream outlived
    Column("retry_at", BigInteger, nullable=False, default=0),
    Column("last_words", Text, nullable=False, default=""),
)

# Who alone may write a table: the epoch grows with each taking, and a commit of an older one is refused.
leases = Table(
    "leases",
    metadata,
    Column("name", String(250), primary_key=True),
    Column("epoch", Integer, nullable=False),
    Column("host", String(255), nullable=False),
    Column("place", String(128), nullable=False, default=""),  # where its pid means that process: see process.place
    Column("pid", Integer, nullable=False),
    Column("created", Float, nullable=False),  # ticks since that machine began
    Column("beats", BigInteger, nullable=False),  # grows while the holder lives; whoever waits watches it, not a clock
    Column("held", Boolean, nullable=False),
)

# Who watches the streams, and when that was last so.
watchers = Table(
    "watchers",
    metadata,
    Column("name", String(64), primary_key=True),
    Column("host", String(255), nullable=False),
    Column("pid", Integer, nullable=False),
    Column("beat_at", BigInteger, nullable=False),
    Column("saw", Text, nullable=False, default=""),
)

# What should be: nothing here means running.
desired = Table(
    "desired",
    metadata,
    Column("pipeline", String(128), primary_key=True),
    Column("state", String(16), nullable=False),  # running | paused | stopped
    Column("by", String(128), nullable=False),
    Column("why", Text, nullable=False),
    Column("at", BigInteger, nullable=False),
    Column("restarts", Integer, nullable=False, default=0),  # how often a person wished for a restart
)

incidents = Table(
    "incidents",
    metadata,
    Column("id", Integer, primary_key=True, autoincrement=True),
    Column("pipeline", String(128), nullable=False),
    Column("cause", String(64), nullable=False),
    Column("evidence", Text, nullable=False),
    Column("cure", Text, nullable=False, default=""),
    Column("done", Text, nullable=False, default=""),  # what was done about it
    Column("first_seen", BigInteger, nullable=False),
    Column("last_seen", BigInteger, nullable=False),
    Column("times", Integer, nullable=False, default=1),
    Column("closed_at", BigInteger),
    Column("told_at", BigInteger, nullable=False, default=0),  # when it was sent on, open
    Column("told_closed_at", BigInteger, nullable=False, default=0),  # when it was sent on that it is over
)

# Who has heard of an incident while others have not: one row a channel, until all have.
hearers = Table(
    "hearers",
    metadata,
    Column("incident", Integer, primary_key=True),
    Column("state", String(8), primary_key=True),  # open | closed
    Column("channel", String(250), primary_key=True),
    Column("at", BigInteger, nullable=False),
)

Index("ledger_by_version", ledger.c.pipeline, ledger.c.version, ledger.c.batch)
Index("begins_by_pipeline", begins.c.pipeline, begins.c.id)
Index("reconciliations_by_pipeline", reconciliations.c.pipeline, reconciliations.c.at)

"""Every plant, by its name. A new one is a line here; each kind of pipeline and each place has some."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from faults.planted import contracts, control, layers, logs, records
from faults.planted.plant import Harm, Plant
from faults.planted.story import MINUTE, Contract

B, A = "before", "after"
TUMBLING, HOPPING, SESSION, JOIN, CUT = "tumbling", "hopping", "session", "join", "begun late"
EVENTS = "events"
NAN, INFINITY = layers.set_to(total=math.nan), layers.set_to(total=math.inf)
WRONG_N = layers.more(n=1)


def told(where: str, *given: tuple[str, str, str, Harm]) -> list[Plant]:
    return [
        Plant(name=f"{name}, {kind}", where=where, kind=kind, when=when, harm=harm) for name, kind, when, harm in given
    ]


def deep(plants: Sequence[Plant], *names: str) -> list[Plant]:
    """Those that only a deep audit can see."""
    assert set(names) <= {one.name for one in plants}, set(names) - {one.name for one in plants}
    return [replace(one, deep=one.name in names) for one in plants]


def in_stream(touch: layers.Touch, *, agreed: bool = True, silently: bool = False) -> Harm:
    return layers.in_layer("speed", touch, agreed=agreed, silently=silently)


def in_batch(touch: layers.Touch, *, agreed: bool = True, silently: bool = False) -> Harm:
    return layers.in_layer("batch", touch, agreed=agreed, silently=silently)


STREAM = told(
    "stream rows",
    ("a value off by a cent", TUMBLING, B, in_stream(layers.A_CENT)),
    ("an event counted twice", HOPPING, B, in_stream(layers.ONE_EVENT)),
    ("a count alone", SESSION, B, in_stream(WRONG_N)),
    ("a row gone", JOIN, B, in_stream(layers.gone)),
    ("a row nobody made", SESSION, B, in_stream(layers.extra)),
    ("NaN", HOPPING, B, in_stream(NAN)),
    ("Infinity", JOIN, B, in_stream(INFINITY)),
    ("null", TUMBLING, B, in_stream(layers.set_to(total=None))),
    ("a microsecond", HOPPING, B, in_stream(layers.moved)),
    ("a late event hidden in a value", TUMBLING, B, in_stream(layers.A_CENT, agreed=False)),
    ("a value in the file", SESSION, B, in_stream(layers.A_CENT, silently=True)),
    ("the last bit", EVENTS, B, in_stream(layers.last_bit)),
    ("a row gone", EVENTS, B, in_stream(layers.gone)),
    ("a row nobody made", EVENTS, B, in_stream(layers.extra)),
)
BATCH = deep(
    told(
        "batch rows",
        ("a value off by a cent", HOPPING, B, in_batch(layers.A_CENT)),
        ("NaN", SESSION, B, in_batch(NAN)),
        ("null", JOIN, B, in_batch(layers.set_to(price=None))),
        ("a doubled row", TUMBLING, B, in_batch(layers.doubled)),
        ("a microsecond", SESSION, B, in_batch(layers.ends_later)),
        ("both layers alike", TUMBLING, B, layers.in_both(layers.ONE_EVENT)),
        ("both layers lack a row", SESSION, B, layers.in_both(layers.gone)),
        ("a value off by a cent", TUMBLING, A, in_batch(layers.A_CENT)),
        ("an event counted twice", SESSION, A, in_batch(layers.ONE_EVENT)),
        ("a row gone", HOPPING, A, in_batch(layers.gone)),
        ("a row nobody made", JOIN, A, in_batch(layers.extra)),
        ("Infinity", TUMBLING, A, in_batch(INFINITY)),
        ("a doubled row", JOIN, A, in_batch(layers.doubled)),
        ("a microsecond", HOPPING, A, in_batch(layers.moved)),
        ("a value in the file", JOIN, A, in_batch(layers.A_CENT, silently=True)),
        ("two rows exchanged", HOPPING, A, layers.exchanged),
        ("both layers alike", HOPPING, A, layers.in_both(layers.ONE_EVENT)),
        ("the batch's last bit", EVENTS, B, in_batch(layers.last_bit)),
        ("a doubled row", EVENTS, A, in_batch(layers.doubled)),
        ("a row gone", EVENTS, A, in_batch(layers.gone)),
        ("the last bit", EVENTS, A, in_batch(layers.last_bit)),
    ),
    "both layers alike, tumbling",
    "both layers lack a row, session",
)
ARCHIVE = deep(
    told(
        "archive",
        ("a late event deleted", TUMBLING, B, records.in_archive(layers.gone, records.late_event)),
        ("an on-time event deleted", HOPPING, B, records.in_archive(layers.gone)),
        ("an event doubled", SESSION, B, records.in_archive(layers.doubled)),
        ("a value changed", JOIN, B, records.in_archive(records.AMOUNT, records.a_payment)),
        ("an event in another hour", TUMBLING, B, records.in_archive(records.an_hour_later)),
        ("_ingest changed", HOPPING, B, records.in_archive(records.INGEST)),
        ("one lost, one doubled", SESSION, B, records.compensated),
        ("a late event deleted", TUMBLING, A, records.in_archive(layers.gone, records.late_event)),
        ("an on-time event deleted", JOIN, A, records.in_archive(layers.gone)),
        ("an event doubled", TUMBLING, A, records.in_archive(layers.doubled)),
        ("a value changed", HOPPING, A, records.in_archive(records.AMOUNT)),
        ("the bytes changed", TUMBLING, A, records.in_archive(records.other_bytes)),
        ("_ingest changed", TUMBLING, A, records.in_archive(records.EARLIER_INGEST)),
        ("an older broker time", TUMBLING, A, records.in_archive(records.older)),
        ("two events exchanged", TUMBLING, A, records.two_exchanged),
        ("a whole file gone", HOPPING, A, records.a_file),
        ("a partition deleted", SESSION, A, records.a_file_and_its_entry),
        ("a value in its file", JOIN, A, records.in_archive(records.AMOUNT, records.a_payment, silently=True)),
        ("an aborted record put in", TUMBLING, A, records.aborted),
        ("a record nobody sent", JOIN, A, records.a_stranger),
        ("an event doubled", EVENTS, B, records.in_archive(layers.doubled)),
        ("a value changed", EVENTS, A, records.in_archive(records.AMOUNT)),
    ),
    "the bytes changed, tumbling",
)
QUARANTINE = told(
    "quarantine",
    ("a row deleted", TUMBLING, B, records.in_quarantine(layers.gone)),
    ("a row doubled", HOPPING, A, records.in_quarantine(layers.doubled)),
    ("another reason", SESSION, A, records.in_quarantine(records.OTHER_REASON)),
    ("moved into the archive", TUMBLING, A, records.refused_is_archived),
    ("an event moved out of the archive", JOIN, A, records.archived_is_refused),
)
IN_ARCHIVE = "place = 'archive'"
LATER_MARK = control.plain("ledger", f"late_watermark = late_watermark + {9 * MINUTE}", "batch = 1")
CONTROL = told(
    "control store",
    ("a manifest's count", TUMBLING, B, control.document("manifests", "body", control.one_more, IN_ARCHIVE)),
    ("a manifest's sum", SESSION, A, control.document("manifests", "body", control.other_sum, IN_ARCHIVE)),
    ("a manifest gone", HOPPING, B, control.row_gone("manifests", IN_ARCHIVE)),
    ("an ingest's count", TUMBLING, A, control.plain("ingests", "archived = archived + 1")),
    ("an ingest's ranges", JOIN, A, control.document("ingests", "ranges", control.shifted(3))),
    ("an ingest gone", SESSION, A, control.row_gone("ingests", "1 = 1")),
    ("late_watermark raised", TUMBLING, B, LATER_MARK),
    ("ranges shifted", HOPPING, B, control.document("ledger", "ranges", control.shifted(3), "batch = 1")),
    ("a micro-batch gone", SESSION, B, control.row_gone("ledger", "batch = 1")),
    ("the generation", JOIN, B, control.plain("ledger", "generation = 2")),
    ("a micro-batch gone", TUMBLING, A, control.row_gone("ledger", "1 = 1", "batch DESC")),
    ("the reconciliation's verdict", HOPPING, A, control.plain("reconciliations", "verdict = 'held'")),
    ("the reconciliation's slots", SESSION, A, control.plain("reconciliations", "slots = '[]'")),
    ("every manifest gone", JOIN, A, control.all_gone("manifests")),
)
SEALS = told(
    "seals",
    ("another digest", TUMBLING, A, control.seal(digest="0" * 40)),
    ("a revision", HOPPING, A, control.seal(revision=9)),
    ("sealed is unsealed", SESSION, A, control.seal(state="unsealed")),
    ("deleted", JOIN, A, control.seal_gone),
    ("its slot's end", TUMBLING, A, control.seal_moved),
    ("another slot's", HOPPING, A, control.seal_shifted),
    ("held is sealed", TUMBLING, B, control.held_as_sealed),
    ("sealed, never judged", SESSION, B, control.sealed_unread),
)
ONE_MORE, OTHER_SUM = logs.cell(2, lambda n: n + 1), logs.cell(5, lambda text: f"{int(text, 16) ^ 1:x}")
LATER = logs.put("through", lambda through: {topic: seq + 5 for topic, seq in through.items()})
FURTHER = logs.put("ends", lambda ends: {t: {p: o + 99 for p, o in parts.items()} for t, parts in ends.items()})
NOTHING = logs.put("covered", lambda covered: [])
SHIFTED = logs.put("ranges", control.shifted(3))
COMMITS = told(
    "commits",
    ("a manifest's count in the words", TUMBLING, B, logs.said_and_copied("archive", "ingest", ONE_MORE)),
    ("a manifest's sum in the words", JOIN, A, logs.said_and_copied("archive", "ingest", OTHER_SUM)),
    ("an ingest's ranges in the words", HOPPING, A, logs.said("archive", "ingest", SHIFTED)),
    ("a restatement's through", TUMBLING, A, logs.said("batch", "restate", LATER)),
    ("a restatement's covered", SESSION, B, logs.said("batch", "restate", NOTHING)),
    ("a restatement's ends", HOPPING, A, logs.said("batch", "restate", FURTHER)),
    ("the archive's last entry emptied", TUMBLING, A, logs.last_entry("archive")),
    ("the batch table's last entry gone", SESSION, A, logs.last_entry_gone("batch")),
    ("the batch table put back", JOIN, A, layers.put_back("batch")),
)
FIRST, SECOND = records.copy_of(0), records.copy_of(1)
COPIES = told(
    "copies of an id",
    ("the copy that counts deleted", TUMBLING, B, records.in_archive(layers.gone, FIRST)),
    ("the copy that counts deleted", JOIN, A, records.in_archive(layers.gone, FIRST)),
    ("the copy that counts is made the later one", TUMBLING, A, records.in_archive(records.much_later, FIRST)),
    ("the other copy deleted", TUMBLING, A, records.in_archive(layers.gone, SECOND)),
    ("the other copy has another id", JOIN, B, records.in_archive(layers.set_to(id=77_777), SECOND)),
)
BETWEEN = told(
    "reconciliations",
    (
        "held is reconciled, before the seal",
        TUMBLING,
        B,
        control.between_judge_and_seal(control.verdict_flipped, harmed=True),
    ),
    (
        "a slot's digest, before the seal",
        HOPPING,
        B,
        control.between_judge_and_seal(control.slot_edited(digest="x"), harmed=False),
    ),
    (
        "a slot left out, before the seal",
        SESSION,
        B,
        control.between_judge_and_seal(control.slot_edited(), harmed=False),
    ),
    (
        "a slot's differences forgotten, before the seal",
        JOIN,
        B,
        control.between_judge_and_seal(control.slot_edited(unexplained=0), harmed=True),
    ),
)
MORE = (
    told(
        "control store",
        ("the id of a topic", JOIN, B, control.plain("topics", "topic_id = 'x'")),
        ("all of it gone", SESSION, A, control.store_gone),
        ("how far the audit saw the table", HOPPING, A, control.plain("audits", "seen_version = seen_version + 9")),
    )
    + told(
        "commits",
        ("the archive put back", HOPPING, A, layers.put_back("archive")),
        ("the stream's table put back", HOPPING, B, layers.put_back("speed")),
    )
    + told(
        "archive",
        ("the bytes changed, then a column added", TUMBLING, A, records.bytes_and_column),
    )
)
CHECKPOINT = told(
    "checkpoint",
    ("offsets skipped", TUMBLING, B, logs.offsets(3)),
    ("offsets again", HOPPING, A, logs.offsets(-3)),
    ("the watermark raised", SESSION, B, logs.watermark(30 * MINUTE)),
    ("a micro-batch undone", JOIN, B, logs.last_batch_undone),
    ("the checkpoint gone", TUMBLING, A, logs.checkpoint_gone),
    ("the state gone", SESSION, A, logs.state_gone),
)
CONTRACTS = [
    Plant(
        name="NOT NULL relaxed, tumbling", where="contracts", kind=TUMBLING, when=A,
        harm=contracts.edited("shop INT NOT NULL", "shop INT"), contract=Contract(required=()),
    ),
    Plant(
        name="NOT NULL tightened, hopping", where="contracts", kind=HOPPING, when=B,
        harm=contracts.edited("ref BIGINT", "ref BIGINT NOT NULL"), contract=Contract(required=("shop", "ref")),
    ),
    Plant(
        name="a column added, session", where="contracts", kind=SESSION, when=A,
        harm=contracts.edited("at TIMESTAMP", "note STRING, at TIMESTAMP"),
    ),
    Plant(
        name="TALLY_SKEW tightened, tumbling", where="contracts", kind=TUMBLING, when=A,
        harm=contracts.nothing, contract=Contract(skew=MINUTE), settings=(("TALLY_SKEW", "1 minute"),),
    ),
    Plant(
        name="TALLY_SKEW tightened, join", where="contracts", kind=JOIN, when=B,
        harm=contracts.nothing, contract=Contract(skew=MINUTE), settings=(("TALLY_SKEW", "1 minute"),),
    ),
]  # fmt: skip
AUDIT = told(
    "audit rows",
    ("every cause is rounding", TUMBLING, A, logs.audit_rows),
    ("the table gone", TUMBLING, A, logs.audit_table),
)
BEGINNINGS = told(
    "beginnings",
    ("deleted", CUT, A, control.all_gone("beginnings")),
    ("moved", CUT, B, control.document("beginnings", "partitions", lambda known: {})),
    ("partial is sealed", CUT, A, control.partial_is_sealed),
)
ALL = (
    *STREAM, *BATCH, *ARCHIVE, *QUARANTINE, *CONTROL, *SEALS, *COMMITS, *COPIES, *BETWEEN, *MORE, *CHECKPOINT,
    *CONTRACTS, *AUDIT, *BEGINNINGS,
)  # fmt: skip
assert len({(one.name, one.when) for one in ALL}) == len(ALL), "two plants of one name"
PLANTS = {one.name + ("" if one.when == B else ", sealed"): one for one in ALL}

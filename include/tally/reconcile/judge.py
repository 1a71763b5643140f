"""Judges one comparison by its totals, slots and differences: reconciled, or held with the reasons. No Spark."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tally.base.duration import from_millis, iso
from tally.base.failpoints import failpoint
from tally.catalog.load import catalogue
from tally.control import beginnings, incidents, seals
from tally.reconcile import comparison, data_docs
from tally.reconcile.audit import doubted
from tally.reconcile.causes import JOINED, MEANING, UNEXPLAINED
from tally.reconcile.comparison import HELD, RECONCILED, Comparison, Verdict
from tally.reconcile.data_docs import Check, Checked, Table
from tally.reconcile.evidence import Evidence, audit_path, gather

# Incidents, by what the on-call engineer has to look at first.
NO_CAUSE, NO_SUM = "unexplained difference", "counts do not add up"
# Explained, so its windows are sealed with the batch's rows; but no stream in order does this.
STREAM_FAULTS = {"skipped": "stream skipped offsets", "applied_twice": "stream applied offsets twice"}


def equal(left: str, right: str, says: str) -> Check:
    return Check(says=says, kind="ExpectColumnPairValuesToBeEqual", arguments={"column_A": left, "column_B": right})


def always(column: str, value: Any, says: str) -> Check:
    return Check(says=says, kind="ExpectColumnValuesToBeInSet", arguments={"column": column, "value_set": [value]})


def present(column: str, says: str) -> Check:
    return Check(says=says, kind="ExpectColumnValuesToNotBeNull", arguments={"column": column})


# Counts and key sets first: whatever is said of columns is true of an empty side too.
TOTALS = (
    equal("audit_rows", "different", "Every row counted as different is in the audit table, and no other"),
    equal("rows_of_both_sides", "windows", "All rows of both layers took part in the comparison"),
    equal("equal_and_different", "windows", "Every compared row is either equal or different"),
    equal("unexplained_audit_rows", "unexplained", "The audit table and the summary agree on what is unexplained"),
    equal("unexplained_in_slots", "unexplained", "The windows and the summary agree on what is unexplained"),
    always("outside_slots", 0, "No difference lies outside the compared windows"),
    always(
        "records_conserved",
        True,
        "Each record in the range is aggregated, late, duplicate, quarantined, filtered, skipped or in flight",
    ),
    always("topics_out_of_balance", "none", "Offsets ingested = archived + quarantined + gaps, for every topic"),
)
SLOTS = (
    always("one_sided_rows_without_cause", 0, "Where one layer has rows and the other has none, every row has a cause"),
    equal("rows_missing_by_key", "rows_missing", "Both layers have the same keys, but for those in the audit table"),
    always("unexplained", 0, "No closed window has an unexplained difference"),
    always("unaccounted", 0, "No window that was sealed has changed without an event that arrived since"),
)
KNOWN = "|".join(sorted(set(MEANING) - {UNEXPLAINED}))
EXPLAINED = always("explained", True, "Every difference is explained by the replay of the stream's micro-batches")
DIFFERENCES = (
    present("window_start", "Every difference names its window's start"),
    present("window_end", "Every difference names its window's end"),
    present("key", "Every difference names its key"),
    present("cause", "Every difference names a cause"),
    EXPLAINED,
    present("explained", "Every difference says whether it is explained"),
    Check(
        says="Every cause is a known one",
        kind="ExpectColumnValuesToMatchRegex",
        arguments={"column": "cause", "regex": rf"^(?:{UNEXPLAINED}|(?:{KNOWN})(?:\{JOINED}(?:{KNOWN}))*)$"},
    ),
)


@dataclass(frozen=True, kw_only=True)
class Judgement:
    """The verdict on a comparison, what failed in a line each, and where to read on."""

    reconciliation: int
    pipeline: str
    verdict: str
    failed: Sequence[str]
    unexplained: int
    partial: int  # closed slots that start before the numbers begin
    data_docs: str
    page: str
    rows: str

    def __str__(self) -> str:
        """The verdict in one line of log."""
        if self.verdict == RECONCILED:
            cut = f"; {self.partial:,} slots are partial: they start before the numbers begin" if self.partial else ""
            return f"{self.pipeline}: reconciled (reconciliation {self.reconciliation}){cut}"
        more = f" (and {len(self.failed) - 1} more)" if len(self.failed) > 1 else ""
        rows = f"{self.rows} where reconciliation = {self.reconciliation}"
        return f"{self.pipeline}: held: {self.failed[0]}{more}; rows: {rows}; checks: {self.page}"


def judge(number: int) -> Judgement:
    """Check a comparison's evidence and write the verdict; idempotent by the comparison's id."""
    compared = comparison.of(number)
    evidence = gather(compared)
    checked = data_docs.check(compared.pipeline, title(compared), tables(evidence))
    doubts = doubted.waiting(compared)
    verdict = verdict_of(checked, evidence, doubts)
    failpoint("judge.before_verdict")
    judged = compared.judged(verdict, str(checked.index))
    comparison.keep_judged(judged)
    judgement = Judgement(
        reconciliation=number, pipeline=judged.pipeline, verdict=verdict.word, failed=verdict.failed,
        unexplained=judged.unexplained, partial=partial_slots(judged), data_docs=judged.data_docs,
        page=verdict.page, rows=audit_path(judged.pipeline),
    )  # fmt: skip
    report(judged, judgement, by_itself=bool(checked.failed))
    return judgement


def verdict_of(checked: Checked, evidence: Evidence, doubts: Sequence[int]) -> Verdict:
    """Held where a check failed, or where an audit holds a slot; what concerns no window in particular holds all."""
    failed = [f"{check.says}: {found}" for check, found in checked.failed]
    if doubts:
        failed.append(f"No window failed its audit and was not restated since: {len(doubts):,} slots")
    of_slots = {check.says for check in SLOTS} | {EXPLAINED.says}
    return Verdict(
        word=HELD if failed else RECONCILED,
        failed=failed,
        page=str(checked.page),
        holds_all=any(check.says not in of_slots for check, _ in checked.failed),
        held_slots=frozenset({*bad_slots(evidence), *doubts}),
    )


def partial_slots(compared: Comparison) -> int:
    """How many closed slots of a comparison start before the numbers of its pipeline begin."""
    pipeline = catalogue().pipelines.get(compared.pipeline)
    begun = beginnings.of(pipeline) if pipeline else None
    return sum(slot.closed and begun.cuts(slot.start) for slot in compared.slots) if begun else 0


def tables(evidence: Evidence) -> list[Table]:
    """The evidence with its checks, in the order in which they are to be read."""
    names = ("window_start", "window_end", "key", "batch", "stream", "replayed")
    return [
        Table(name="totals", rows=evidence.totals, checks=TOTALS),
        Table(name="windows", rows=evidence.slots, checks=SLOTS, index=("window", "rows", "stream_rows")),
        Table(name="differences", rows=evidence.differences, checks=DIFFERENCES, index=names),
    ]


def title(compared: Comparison) -> str:
    """The name of a judgement in the Data Docs and of its folder; without spaces, so that a path can be copied."""
    since, until = (iso(from_millis(edge)).replace(":", "") for edge in compared.span)
    return f"reconciliation-{compared.number}_{since}_to_{until}"


def bad_slots(evidence: Evidence) -> list[int]:
    """The closed slots that must not be sealed, whatever becomes of the others."""
    slots = evidence.slots
    bad = slots[
        (slots["unexplained"] != 0)
        | (slots["unaccounted"] != 0)
        | (slots["one_sided_rows_without_cause"] != 0)
        | (slots["rows_missing_by_key"] != slots["rows_missing"])
    ]
    return [int(start) for start in bad["start"]]


def report(compared: Comparison, judgement: Judgement, *, by_itself: bool) -> None:
    """Open an incident for what the comparison itself holds; close the pipeline's when nothing is held any more."""
    pipeline = compared.pipeline
    for word, cause in STREAM_FAULTS.items():
        if compared.events.get(word):
            said = f"{compared.events[word]:,} events {MEANING[word]}; the batch has them right"
            incidents.report(pipeline, cause, said, cure=f"tally doctor {pipeline}")
    if judgement.verdict == HELD and by_itself:
        cause = NO_CAUSE if judgement.unexplained else NO_SUM
        since, until = (iso(from_millis(edge)) for edge in compared.span)
        cure = f"read {judgement.page}, mend the cause, then tally backfill {pipeline} --from {since} --to {until}"
        incidents.report(pipeline, cause, str(judgement), cure=cure)
    if judgement.verdict == HELD:
        return
    mine = {slot.start for slot in compared.slots if slot.closed}
    elsewhere = seals.read(pipeline, compared.version)
    if not any(seal.state == "held" and seal.slot_start not in mine for seal in elsewhere):
        incidents.close(pipeline, NO_CAUSE, NO_SUM)

"""A comparison as a value: what it counted, the state of each slot, and the verdict on it. No Spark.

The control store keeps it as JSON, which is read and written here and nowhere else.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from tally.base.duration import from_millis, instant, iso
from tally.base.errors import TallyError
from tally.catalog.ranges import Range
from tally.control import runs
from tally.control.runs import Reconciliation
from tally.reconcile.conservation import Balance, Conservation

RECONCILED, HELD = "reconciled", "held"


@dataclass(frozen=True, kw_only=True)
class SlotState:
    """A slot as it was compared, in milliseconds: what a seal is put on."""

    start: int
    end: int
    rows: int = 0
    stream_rows: int = 0
    digest: str = ""  # of the batch's rows
    closed: bool = False
    unexplained: int = 0  # rows
    explained: int = 0  # events
    unaccounted: int = 0  # 1: it was sealed with other rows, and no event arrived since

    def as_json(self) -> dict[str, Any]:
        return dict(vars(self))

    @classmethod
    def from_json(cls, said: Mapping[str, Any]) -> SlotState:
        return cls(**{name: said[name] for name in cls.__dataclass_fields__ if name in said})


@dataclass(frozen=True, kw_only=True)
class Difference:
    """A row that is not the same in both layers: its window (ISO 8601), its key, each side's measures, the cause."""

    window_start: str
    window_end: str
    key: Mapping[str, Any]
    batch: Mapping[str, Any] | None
    stream: Mapping[str, Any] | None
    cause: str

    def as_json(self) -> dict[str, Any]:
        window = {"window_start": self.window_start, "window_end": self.window_end}
        return {**window, **self.key, "batch": self.batch, "stream": self.stream, "cause": self.cause}

    @classmethod
    def from_json(cls, said: Mapping[str, Any]) -> Difference:
        own = {name: said[name] for name in cls.__dataclass_fields__ if name != "key"}
        return cls(**own, key={name: value for name, value in said.items() if name not in own})


@dataclass(frozen=True, kw_only=True)
class CutMark:
    """The cut of a comparison: its micro-batch and watermark (milliseconds), and the version of the speed table."""

    batch: int
    generation: int
    watermark: int
    speed_version: int

    def as_json(self) -> dict[str, Any]:
        return {**vars(self), "watermark": iso(from_millis(self.watermark))}

    @classmethod
    def from_json(cls, said: Mapping[str, Any]) -> CutMark:
        return cls(**{**said, "watermark": instant(said["watermark"], "watermark")})


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """What a judgement came to: reconciled, or held with what failed, in a line each, and which slots it holds."""

    word: str
    failed: Sequence[str] = ()
    page: str = ""  # of the Data Docs, with the first check that failed
    holds_all: bool = False  # what failed concerns no window in particular
    held_slots: frozenset[int] = frozenset()

    def as_json(self) -> dict[str, Any]:
        return {
            "verdict": self.word,
            "failed": list(self.failed),
            "data_docs_page": self.page,
            "holds_all": self.holds_all,
            "held_slots": sorted(self.held_slots),
        }

    @classmethod
    def from_json(cls, said: Mapping[str, Any]) -> Verdict | None:
        """None where nothing was judged yet, or by a version that did not keep it."""
        if "holds_all" not in said:
            return None
        return cls(
            word=said.get("verdict", ""),
            failed=tuple(said.get("failed", ())),
            page=said.get("data_docs_page", ""),
            holds_all=bool(said["holds_all"]),
            held_slots=frozenset(said.get("held_slots", ())),
        )


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """What a comparison found: rows that are equal and different, the events behind them, and every slot's state."""

    number: int
    pipeline: str
    version: str
    ranges: Sequence[Range] = ()  # of window starts
    ticket: str = ""
    windows: int = 0  # rows of both layers
    equal: int = 0
    different: int = 0
    rounding: int = 0  # of those equal
    events: Mapping[str, int] = field(default_factory=dict)  # by cause
    unexplained: int = 0  # rows
    rows: Sequence[Difference] = ()  # the first that differ
    conserved: Conservation | None = None
    ingest: Mapping[str, Balance] = field(default_factory=dict)  # by topic
    cut: CutMark | None = None
    batch_version: int = -1
    archive: Mapping[str, int] | None = None  # by topic, the last ingest that the batch had read; None: not kept
    meaning: Mapping[str, Any] | None = None  # what follows from the definition: see meaning.py
    slots: Sequence[SlotState] = ()
    state: str = "compared"  # comparing | compared | reconciled | held
    verdict: Verdict | None = None
    data_docs: str = ""  # the index of the Data Docs

    @property
    def span(self) -> Range:
        """From the first window start to the end of the last range; (0, 0) where nothing was compared."""
        return (self.ranges[0][0], self.ranges[-1][1]) if self.ranges else (0, 0)

    @property
    def open_windows(self) -> int:
        return sum(max(slot.rows, slot.stream_rows) for slot in self.slots if not slot.closed)

    def clears(self, slot: SlotState) -> bool:
        """Whether it was judged, and nothing was found against a closed slot."""
        verdict = self.verdict
        if verdict is None or verdict.holds_all:
            return False
        return slot.unexplained == 0 and slot.start not in verdict.held_slots

    def judged(self, verdict: Verdict, data_docs: str) -> Comparison:
        return replace(self, verdict=verdict, state=verdict.word, data_docs=data_docs)

    def as_json(self) -> dict[str, Any]:
        """The summary that the control store keeps, beside the slots."""
        since, until = (iso(from_millis(edge)) for edge in self.span) if self.ranges else (None, None)
        return {
            "pipeline": self.pipeline,
            "version": self.version,
            "from": since,
            "to": until,
            "ranges": [list(one) for one in self.ranges],
            "ticket": self.ticket,
            "windows": self.windows,
            "equal": self.equal,
            "different": self.different,
            "rounding": self.rounding,
            "events": dict(sorted(self.events.items())),
            "unexplained": self.unexplained,
            "rows": [row.as_json() for row in self.rows],
            "open_windows": self.open_windows,
            "conservation": self.conserved.as_json() if self.conserved else {},
            "ingest": {topic: balance.as_json() for topic, balance in self.ingest.items()},
            "cut": self.cut.as_json() if self.cut else None,
            "batch_version": self.batch_version,
            **({} if self.archive is None else {"archive": dict(self.archive)}),
            **({} if self.meaning is None else {"meaning": dict(self.meaning)}),
            "verdict": self.state,
            **(self.verdict.as_json() if self.verdict else {}),
        }

    @classmethod
    def from_json(cls, row: Reconciliation) -> Comparison:
        """A row of the control store; what an older version did not keep is left at its default."""
        said = row.summary
        plain = ("ticket", "windows", "equal", "different", "rounding", "events", "unexplained", "batch_version")
        return cls(
            number=row.id,
            pipeline=row.pipeline,
            version=row.version,
            **{name: said[name] for name in (*plain, "archive", "meaning") if name in said},
            ranges=[(start, end) for start, end in said.get("ranges", ())],
            rows=[Difference.from_json(one) for one in said.get("rows", ())],
            conserved=Conservation.from_json(said["conservation"]) if said.get("conservation") else None,
            ingest={topic: Balance.from_json(one) for topic, one in said.get("ingest", {}).items()},
            cut=CutMark.from_json(said["cut"]) if said.get("cut") else None,
            slots=[SlotState.from_json(one) for one in row.slots],
            state=row.verdict,
            verdict=Verdict.from_json(said),
            data_docs=row.data_docs,
        )


def of(number: int, *, ready: Sequence[str] = ("compared", RECONCILED, HELD)) -> Comparison:
    """The comparison of that id in one of the states, or why there is none to go on with."""
    row = runs.reconciliation(number)
    if row is None:
        raise TallyError(f"no reconciliation {number}", field="reconciliation", cure="tally reconcile PIPELINE")
    if row.verdict not in ready:
        what = "its comparison never ended" if row.verdict == "comparing" else "it is not judged yet"
        raise TallyError(
            f"reconciliation {number}: {what}", pipeline=row.pipeline, cure=f"tally reconcile {row.pipeline}"
        )
    return Comparison.from_json(row)


def keep(found: Comparison) -> None:
    """Keep what a comparison found, not yet judged."""
    runs.keep_comparison(found.number, found.as_json(), [slot.as_json() for slot in found.slots])


def keep_judged(found: Comparison) -> None:
    """Write the verdict on a comparison beside it."""
    runs.judge_reconciliation(found.number, found.state, found.data_docs, found.as_json())

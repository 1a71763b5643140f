"""Random states of the two tables and the seals, and the rules of `read` in plain Python: the oracle."""

from __future__ import annotations

import random
from dataclasses import dataclass, field, replace
from datetime import timedelta

from tally.base.duration import millis
from tally.catalog.schema import parse_schema
from tally.catalog.spec import Hopping, Pipeline, Session, Topic, Tumbling, Window
from tally.control.seals import Seal

DAY = 86_400_000
MIDNIGHT = 20_000 * DAY
MINUTE = timedelta(minutes=1)
WINDOWS = {
    "tumbling": Tumbling(size=MINUTE),
    "hopping": Hopping(size=15 * MINUTE, slide=MINUTE),
    "session": Session(size=30 * MINUTE),
}
TOPIC = Topic(
    name="trips",
    schema=parse_schema("zone INT, kind STRING, fare DOUBLE, at TIMESTAMP"),
    event_time="at",
    lateness=timedelta(minutes=5),
)
DDL = (
    "window_start TIMESTAMP, window_end TIMESTAMP, zone INT, kind STRING, trips BIGINT, fare DOUBLE, paid DECIMAL(12,2)"
)

Row = dict[str, object]


def made_pipeline(window: Window, version: str = "v000000000001") -> Pipeline:
    return Pipeline(
        name="made", reads=(TOPIC,), window=window, key=("zone", "kind"), reach=None,
        function=lambda frame: frame, file="made.py", line=1, doc="", version=version,
    )  # fmt: skip


@dataclass
class Case:
    """Rows with times in milliseconds; speed rows carry `_batch`."""

    pipeline: Pipeline
    watermark: int
    speed: list[Row] = field(default_factory=list)
    batch: list[Row] = field(default_factory=list)
    seals: list[Seal] = field(default_factory=list)
    begins: int | None = None  # on the grid; windows that start before it are partial


def random_case(window: Window, seed: int) -> Case:
    """Twenty slots around a midnight, so that ranges cross a date, with each half's own gaps."""
    dice = random.Random(seed)
    pipeline = made_pipeline(window)
    step = millis(window.step)
    first = MIDNIGHT - 10 * step
    case = Case(pipeline=pipeline, watermark=first + dice.randrange(-step, 21 * step))
    for _ in range(dice.randint(20, 60)):
        start = first + dice.randrange(20) * step
        end = start + millis(window.size)
        if isinstance(window, Session):
            start, end = start + dice.randrange(step), start + dice.randrange(step, 4 * step)
        identity = {
            "window_start": start,
            "window_end": end,
            "zone": dice.choice([None, 1, 2]),
            "kind": dice.choice("äb"),
        }
        if any(same(identity, row) for row in [*case.speed, *case.batch]):
            continue
        if dice.random() < 0.85:
            for batch in sorted(dice.sample(range(30), dice.randint(1, 4))):
                case.speed.append({**identity, **measures(dice), "_batch": batch})
        if dice.random() < 0.8:
            case.batch.append({**identity, **measures(dice)})
    dice.shuffle(case.speed)
    for at in range(20):
        if dice.random() < 0.6:
            case.seals.append(
                seal(pipeline, first + at * step, dice.choice(["sealed", "held", "unsealed"]), dice.randint(0, 4))
            )
    if dice.random() < 0.5:
        case.begins = first + dice.randrange(20) * step
        case.seals = [
            replace(one, state="partial") if one.state == "sealed" and one.slot_start < case.begins else one
            for one in case.seals
        ]
    return case


def measures(dice: random.Random) -> Row:
    return {
        "trips": dice.randrange(1000),
        "fare": dice.choice([None, dice.uniform(0, 99)]),
        "paid": dice.randrange(10**6),
    }


def seal(pipeline: Pipeline, start: int, state: str, revision: int) -> Seal:
    return Seal(
        pipeline=pipeline.name,
        version=pipeline.version,
        slot_start=start,
        slot_end=start + millis(pipeline.window.step),
        state=state,
        revision=revision,
        digest="",
        rows=0,
        reconciliation=1,
        changed_at=1,
    )


def same(one: Row, other: Row) -> bool:
    return all(one[name] == other[name] for name in ("window_start", "window_end", "zone", "kind"))


def oracle(case: Case, from_ms: int | None, to_ms: int | None, layer: str) -> list[Row]:
    """The rules, row by row: judged slots from the batch, everything else from the newest micro-batch."""

    def inside(row: Row) -> bool:
        start = row["window_start"]
        return (from_ms is None or start >= from_ms) and (to_ms is None or start < to_ms)

    def judgement(row: Row) -> Seal | None:
        for one in case.seals:
            if one.slot_start <= row["window_start"] < one.slot_end:
                return one
        return None

    newest = [r for r in case.speed if not any(same(r, o) and o["_batch"] > r["_batch"] for o in case.speed)]
    newest = [{name: value for name, value in row.items() if name != "_batch"} for row in newest]
    result = []
    for row in case.batch:
        mark = judgement(row)
        if mark:
            state = shown(mark, case.begins)
            result.append({**row, "state": state, "revision": mark.revision, "_from": "batch"})
        else:
            result.append({**row, "state": stream_state(row, case), "revision": 0, "_from": "unjudged batch"})
    for row in newest:
        origin = "judged speed" if judgement(row) else "speed"
        result.append({**row, "state": stream_state(row, case), "revision": 0, "_from": origin})
    wanted = {"served": ("batch", "speed"), "speed": ("speed", "judged speed"), "batch": ("batch", "unjudged batch")}[
        layer
    ]
    rows = [row for row in result if row["_from"] in wanted and inside(row)]
    for row in rows:
        del row["_from"]
    return sorted(rows, key=place)


def stream_state(row: Row, case: Case) -> str:
    """What a row is that only the stream vouches for."""
    if case.begins is not None and row["window_start"] < case.begins:
        return "partial"
    # An event may still join a session until the watermark is a whole gap past its end.
    window = case.pipeline.window
    wait = window.size // timedelta(milliseconds=1) if isinstance(window, Session) else 0
    return "closed" if case.watermark >= row["window_end"] + wait else "open"


def shown(mark: Seal, begins: int | None) -> str:
    """A seal that was taken back is none; before the beginning there was none to take back."""
    if mark.state != "unsealed":
        return mark.state
    return "partial" if begins is not None and mark.slot_start < begins else "closed"


def place(row: Row) -> tuple[object, ...]:
    """Window, then key, nulls first."""
    keys = [(row[name] is not None, row[name] if row[name] is not None else 0) for name in ("zone", "kind")]
    return (row["window_start"], row["window_end"], *keys)

"""Errors that are planted in a clean run, and the invariant that each of them breaks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from clean_run import T0, Case

from faults import truth
from faults.tables import Lost
from faults.truth import MINUTE, Batch


def some_sealed(case: Case) -> truth.Key:
    return sorted(key for key, row in case.seen.served.items() if row[2] == "sealed" and row[0] > 1)[5]


def served(change: Callable[[tuple[int, float, str]], tuple[int, float, str]]) -> Callable[[Case], None]:
    def act(case: Case) -> None:
        key = some_sealed(case)
        case.seen.served[key] = change(case.seen.served[key])

    return act


def drop_row(case: Case) -> None:
    del case.seen.served[some_sealed(case)]


def wrong_window(case: Case) -> None:
    start, end, shop = key = some_sealed(case)
    case.seen.served[start + 500 * MINUTE, end + 500 * MINUTE, shop] = case.seen.served.pop(key)


def wrong_shop(case: Case) -> None:
    start, end, _ = key = some_sealed(case)
    case.seen.served[start, end, 77] = case.seen.served.pop(key)


def served_twice(case: Case) -> None:
    case.seen.doubled_rows.append(some_sealed(case))


def speed_off_by(by: int) -> Callable[[Case], None]:
    def act(case: Case) -> None:
        key = sorted(case.seen.speed)[4]
        count, total = case.seen.speed[key]
        case.seen.speed[key] = (count + by, total + by * 0.25)

    return act


def speed_row_gone(case: Case) -> None:
    del case.seen.speed[sorted(case.seen.speed)[4]]


def archived_twice(case: Case) -> None:
    case.seen.archive[sorted(case.seen.archive)[7]] += 1


def not_archived(case: Case) -> None:
    del case.seen.archive[sorted(case.seen.archive)[7]]


def told_of_others(case: Case) -> None:
    """An incident names offsets, and others are gone."""
    topic, partition, offset = place = sorted(case.seen.archive)[7]
    del case.seen.archive[place]
    case.seen.told_lost.add(Lost(topic, partition, offset + 1, offset + 2))


def refused_is_archived(case: Case) -> None:
    place = sorted(case.seen.quarantine)[0]
    del case.seen.quarantine[place]
    case.seen.archive[place] += 1


def in_both(case: Case) -> None:
    case.seen.archive[sorted(case.seen.quarantine)[0]] += 1


def valid_is_quarantined(case: Case) -> None:
    place = sorted(case.seen.archive)[7]
    del case.seen.archive[place]
    case.seen.quarantine[place] = ["not_json"]


def quarantined_twice(case: Case) -> None:
    case.seen.quarantine[sorted(case.seen.quarantine)[0]] *= 2


def not_quarantined(case: Case) -> None:
    del case.seen.quarantine[sorted(case.seen.quarantine)[0]]


def wrong_reason(case: Case) -> None:
    case.seen.quarantine[sorted(case.seen.quarantine)[0]] = ["no_id"]


def from_nowhere(case: Case) -> None:
    case.seen.archive["faults.orders", 0, 10**6] += 1


def batch_with_records(case: Case) -> int:
    def full(batch: Batch) -> bool:
        return all(end - start > 3 for start, end in batch.ranges.values())

    return next(at for at, batch in enumerate(case.seen.batches) if at > 2 and full(batch))


def moved(by_start: int, by_end: int) -> Callable[[Case], None]:
    def act(case: Case) -> None:
        at = batch_with_records(case)
        batch = case.seen.batches[at]
        start, end = batch.ranges[0]
        changed = {**batch.ranges, 0: (start + by_start, end + by_end)}
        case.seen.batches[at] = replace(batch, ranges=changed)

    return act


def two_commits(case: Case) -> None:
    case.seen.batches.append(replace(case.seen.batches[-1], version=99))


def two_commits_of_an_old_one(case: Case) -> None:
    case.seen.batches.insert(6, replace(case.seen.batches[3], version=99))


def a_commit_gone(case: Case) -> None:
    del case.seen.batches[batch_with_records(case)]


def older_watermark(case: Case) -> None:
    case.seen.batches[-1] = replace(case.seen.batches[-1], watermark=T0)


def unread_tail(case: Case) -> None:
    last = max(i for i, batch in enumerate(case.seen.batches) if batch.ranges[0][1] > batch.ranges[0][0])
    for at in range(last, len(case.seen.batches)):
        start, _ = case.seen.batches[last].ranges[0]
        case.seen.batches[at] = replace(
            case.seen.batches[at], ranges={**case.seen.batches[at].ranges, 0: (start, start)}
        )


def reconciled_wrongly(name: str, by: int) -> Callable[[Case], None]:
    def act(case: Case) -> None:
        counts = case.seen.found["conservation"]
        counts[name] = counts.get(name, 0) + by
        counts["aggregated"] -= by

    return act


def verdict_held(case: Case) -> None:
    case.seen.found |= {"verdict": "held", "unexplained": 1}


def not_reconciled(case: Case) -> None:
    case.seen.found = {"refused": {"error": "no"}}


PLANTED: dict[str, tuple[str, Callable[[Case], None]]] = {
    "a served event is gone": ("I1", served(lambda row: (row[0] - 1, row[1] - 0.25, row[2]))),
    "a served event counts twice": ("I1", served(lambda row: (row[0] + 1, row[1] + 0.25, row[2]))),
    "a sum is off by a quarter": ("I1", served(lambda row: (row[0], row[1] + 0.25, row[2]))),
    "a closed window is not sealed": ("I1", served(lambda row: (row[0], row[1], "closed"))),
    "a window is held": ("I1", served(lambda row: (row[0], row[1], "held"))),
    "a row is gone": ("I1", drop_row),
    "a row is in another window": ("I1", wrong_window),
    "a row is under another key": ("I1", wrong_shop),
    "a row is served twice": ("I1", served_twice),
    "the stream lost an event": ("I1", speed_off_by(-1)),
    "the stream counted one twice": ("I1", speed_off_by(1)),
    "the stream lost a row": ("I1", speed_row_gone),
    "a watermark went back": ("I1", older_watermark),
    "held by the judge": ("I1", verdict_held),
    "archived twice": ("I2", archived_twice),
    "a refused record is archived": ("I2", refused_is_archived),
    "a record is in both tables": ("I2", in_both),
    "a valid record is quarantined": ("I2", valid_is_quarantined),
    "quarantined twice": ("I2", quarantined_twice),
    "a wrong reason": ("I2", wrong_reason),
    "a record that nobody sent": ("I2", from_nowhere),
    "late ones are counted wrongly": ("I2", reconciled_wrongly("late", 1)),
    "an event is said to be skipped": ("I2", reconciled_wrongly("skipped", 1)),
    "not archived, and nobody says so": ("I3", not_archived),
    "not quarantined, and nobody says so": ("I3", not_quarantined),
    "the incident names other offsets": ("I3", told_of_others),
    "a range is skipped": ("I4", moved(2, 0)),
    "a range is read twice": ("I4", moved(-2, 0)),
    "a range ends too late": ("I4", moved(0, 2)),
    "the newest micro-batch has two commits": ("I4", two_commits),
    "an old micro-batch has two commits": ("I4", two_commits_of_an_old_one),
    "a micro-batch has no commit": ("I4", a_commit_gone),
    "the last records were never read": ("I4", unread_tail),
    "not reconciled": ("I5", not_reconciled),
}

"""Retention eats offsets that nobody has read: who needed them must name each range, and count nothing as complete."""

from __future__ import annotations

import json
import time

from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient

from faults import tables
from faults.kinds.kills import kill_all
from faults.producer import PARTITIONS
from faults.report import Heal
from faults.run import Run, quiet
from faults.stack import until
from faults.tables import Lost
from faults.truth import SHAPES


def eaten(run: Run) -> None:
    """While no driver lives, the records after its last offset go, of every partition of one topic."""
    (name,) = run.stack.pipelines
    topic = SHAPES[name].topic
    run.stack.stop_supervising()
    kill_all(run.stack)
    time.sleep(8)
    reached = ends(name)
    cut = {p: end + run.rng.randrange(20, 100) for p, end in reached.items()}
    delete(run, topic, cut)
    due = {Lost(topic, p, reached[p], cut[p]) for p in range(PARTITIONS)}
    since = time.monotonic()
    run.stack.supervise()
    told: set[Lost] = set()

    def all_told() -> bool:
        told.update(tables.look(name, {}).told_lost)
        return due <= told

    if not until(lambda: quiet(all_told), 90, 1.0):
        run.broken("I3", f"the stream told of {sorted(told)}, gone are {sorted(due)}")
    elif told != due:
        run.broken("I3", f"the stream told of more than is gone: {sorted(told - due)}")
    run.result.heals.append(
        Heal(
            point="unread records deleted",
            seconds=round(time.monotonic() - since, 1),
            by="not: it refuses, and says so",
        )
    )
    batch_too(run, topic, cut)
    run.over = True


def batch_too(run: Run, topic: str, cut: dict[int, int]) -> None:
    """The archive has read none of them: `tally batch` must name the ranges that it lacks, and seal none of these."""
    from tally.control import incidents

    _, found = run.stack.settle(run.span())
    said = " ".join([json.dumps(found), *(one.evidence for one in incidents.history())])
    told = {Lost(t, int(p), int(a), int(b)) for t, p, a, b in tables.LOST.findall(said)}
    due = {Lost(topic, p, 0, cut[p]) for p in cut}
    if not due <= told:
        run.broken("I3", f"the batch told of {sorted(told)}, gone are {sorted(due)}")
    gone = [one for one in run.sender.sent if any(lost.holds(one.place) for lost in due)]
    for name, one in found.items():
        states = tables.look(name, one).served
        touched = {(w, one.shop) for one in gone if one.valid for w in SHAPES[name].windows(one.time)}
        sealed = [key for key, row in states.items() if row[2] == "sealed" and ((key[0], key[1]), key[2]) in touched]
        run.result.notes.append(f"{name}: {one.get('verdict', one)}, {one.get('unexplained')} unexplained")
        if sealed:
            run.broken("I3", f"{name}: {len(sealed)} windows are sealed without records that they held: {sealed[:3]}")


def ends(name: str) -> dict[int, int]:
    """Where the stream goes on: the ends of its last planned micro-batch where that was applied, else its start."""
    from tally.catalog.load import catalogue
    from tally.speed import checkpoint

    pipeline = catalogue().pipeline(name)
    root = checkpoint.root(name, pipeline.version, 1)
    needed, _ = checkpoint.unread(root, [SHAPES[name].topic])
    return needed[SHAPES[name].topic]


def delete(run: Run, topic: str, cut: dict[int, int]) -> None:
    admin = AdminClient({"bootstrap.servers": run.stack.bootstrap})
    for done in admin.delete_records([TopicPartition(topic, p, offset) for p, offset in cut.items()]).values():
        done.result(15)

"""Every fault of the campaign, by name, in the order in which they are run."""

from __future__ import annotations

from faults.kinds import (
    batch,
    broker,
    clock,
    days,
    disk,
    injection,
    kills,
    memory,
    network,
    records,
    retention,
    stops,
    supervisors,
)
from faults.producer import Disorder
from faults.run import Kind

ONE = ("shop_minutes",)
OWN = {"TALLY_SHARED": "false"}  # where the steps, or the files, are those of a query of its own
MUCH_LATE = Disorder(late=0.1, hours_late=0.05, day_before=True)
DISKS = {"TALLY_LAKE": 96, "TALLY_CHECKPOINTS": 48, "TALLY_CONTROL": 24}
# Five million events: no heap of a short run.
LARGE = {"TALLY_STREAM_MEMORY": "1536m", "TALLY_SPARK_MEMORY": "3g"}

ALL = (
    Kind(name="kill at failpoints", fault=kills.at_failpoints, seconds=500, pipelines=ONE, settings=OWN),
    Kind(
        name="kill at trims", fault=kills.at_trims, seconds=240, pipelines=ONE, disorder=Disorder(day_before=True)
    ),
    Kind(name="kill at files", fault=kills.at_files, seconds=500, pipelines=ONE, settings=OWN),
    Kind(name="kill at any moment", fault=kills.at_any_moment, seconds=500),
    Kind(
        name="kill under load", fault=kills.under_load, seconds=1600, pipelines=("shop_minutes", "meter_minutes"),
        rate=3400, speed=45, settings={**LARGE, **OWN},
    ),
    Kind(
        name="kill a shared stream", fault=kills.of_shared, seconds=500,
        disorder=Disorder(late=0.1, hours_late=0.05, again=0.1),
    ),
    Kind(name="kill the batch", fault=batch.at_failpoints, seconds=500, pipelines=ONE),
    Kind(name="freeze", fault=stops.frozen, seconds=400, pipelines=ONE),
    Kind(name="broker killed", fault=broker.killed, seconds=240),
    Kind(name="broker away", fault=broker.away_for_long, seconds=300),
    Kind(name="network cut", fault=network.cut, seconds=700, apart=True),
    Kind(name="disk full", fault=disk.full, seconds=400, pipelines=ONE, mounts=DISKS),
    Kind(
        name="out of memory", fault=memory.out, seconds=400, rate=40, settings=memory.HEAPS,
        pipelines=("meter_minutes", "shop_minutes"),
    ),
    Kind(name="poison", fault=records.poisoned, seconds=180, rate=40, breaks=False),
    Kind(
        name="disorder", fault=records.disorderly, seconds=180, rate=80, breaks=False,
        disorder=Disorder(late=0.2, hours_late=0.1, again=0.2, bad=0.05),
    ),
    Kind(name="backfills at once", fault=batch.at_once, seconds=500, pipelines=("shop_minutes", "shop_spans")),
    Kind(name="retention", fault=retention.eaten, seconds=120, pipelines=ONE),
    Kind(name="two supervisors", fault=supervisors.raced, seconds=900, pipelines=ONE, rate=20),
    Kind(name="Airflow dies", fault=supervisors.airflow_dies, seconds=1900, pipelines=ONE, rate=20),
    Kind(
        name="injection", fault=injection.injected, seconds=900, pipelines=ONE, rate=20,
        # One run of each as it starts, none at the full hour.
        settings={"TALLY_BATCH_EVERY": "0 0 1 1 *", "TALLY_ARCHIVE_EVERY": "0 0 1 1 *"},
    ),
    Kind(name="clock", fault=clock.off, seconds=300, pipelines=ONE),
    *(
        Kind(
            name=name, fault=change.fault, seconds=500, begins=change.begins, disorder=MUCH_LATE,
            settings={"TZ": change.zone}, pipelines=("meter_minutes", "shop_minutes"), rate=60,
        )
        for name, change in (
            ("a day of 25 hours", days.BERLIN_AUTUMN),
            ("a day of 23 hours", days.BERLIN_SPRING),
            ("a day of 25 hours elsewhere", days.NEW_YORK_AUTUMN),
        )
    ),
)  # fmt: skip
KINDS = {kind.name: kind for kind in ALL}

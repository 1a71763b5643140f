"""The topics of the campaign: one whose events carry an id, one whose don't."""

from tally import topic

orders = topic(
    "faults.orders",
    schema="id BIGINT, shop INT, amount DOUBLE, at TIMESTAMP",
    event_time="at",
    lateness="2 minutes",
    unique="id",
    partitions=2,
)

readings = topic(
    "faults.readings",
    schema="id BIGINT, shop INT, amount DOUBLE, at TIMESTAMP",
    event_time="at",
    lateness="2 minutes",
    partitions=2,
)

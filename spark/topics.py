"""The topics that the pipelines read."""

from tally import topic

rides = topic(
    "rides",
    schema="""
        ride_id BIGINT, cab_id INT, vendor_id INT, pickup TIMESTAMP, dropoff TIMESTAMP,
        pickup_zone INT, dropoff_zone INT, passengers INT, distance DOUBLE,
        fare DOUBLE, tip DOUBLE, total_amount DOUBLE
    """,
    event_time="pickup",
    lateness="10 minutes",
    unique="ride_id",
)

payments = topic(
    "payments",
    schema="payment_id BIGINT, ride_id BIGINT, payment_type STRING, amount DOUBLE, paid_at TIMESTAMP",
    event_time="paid_at",
    lateness="10 minutes",
    unique="payment_id",
)

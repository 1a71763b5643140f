from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from tally import pipeline, tumbling
from topics import payments, rides


@pipeline(reads=[rides, payments], window=tumbling("1 minute"), key="payment_type", reach="30 minutes")
def paid_rides(rides: DataFrame, payments: DataFrame) -> DataFrame:
    """Takings per minute of pickup and payment type, for rides paid within half an hour."""
    paid = rides.alias("r").join(
        payments.alias("p"),
        F.expr("r.ride_id = p.ride_id AND paid_at >= pickup AND paid_at < pickup + INTERVAL 30 MINUTES"),
    )
    return paid.groupBy("window", "payment_type").agg(F.count("*").alias("rides"), F.sum("amount").alias("takings"))

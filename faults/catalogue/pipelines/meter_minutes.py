from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from tally import pipeline, tumbling
from topics import readings


@pipeline(reads=readings, window=tumbling("1 minute"), key="shop")
def meter_minutes(readings: DataFrame) -> DataFrame:
    """Readings per shop, minute by minute, every record an event."""
    return readings.groupBy("window", "shop").agg(F.count("*").alias("n"), F.sum("amount").alias("total"))

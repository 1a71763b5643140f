from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from tally import pipeline, tumbling
from topics import rides


@pipeline(reads=rides, window=tumbling("1 minute"), key="vendor_id")
def vendor_trips(rides: DataFrame) -> DataFrame:
    """Trips and takings per vendor, minute by minute."""
    return rides.groupBy("window", "vendor_id").agg(F.count("*").alias("trips"), F.sum("total_amount").alias("takings"))

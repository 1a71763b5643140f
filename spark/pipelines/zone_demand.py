from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from tally import hopping, pipeline
from topics import rides


@pipeline(reads=rides, window=hopping("15 minutes", by="1 minute"), key="pickup_zone")
def zone_demand(rides: DataFrame) -> DataFrame:
    """How many rides began in each zone in the last quarter of an hour, every minute."""
    return rides.groupBy("window", "pickup_zone").agg(
        F.count("*").alias("pickups"), F.sum("passengers").alias("passengers"), F.max("distance").alias("longest")
    )

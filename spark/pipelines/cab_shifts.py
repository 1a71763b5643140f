from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from tally import pipeline, session
from topics import rides


@pipeline(reads=rides, window=session("30 minutes"), key="cab_id")
def cab_shifts(rides: DataFrame) -> DataFrame:
    """One row for each stretch of a cab's work: rides without a pause of half an hour."""
    return rides.groupBy("window", "cab_id").agg(
        F.count("*").alias("rides"), F.sum("total_amount").alias("takings"), F.sum("distance").alias("miles")
    )

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from tally import pipeline, tumbling
from topics import orders


@pipeline(reads=orders, window=tumbling("1 minute"), key="shop")
def shop_minutes(orders: DataFrame) -> DataFrame:
    """Orders and takings per shop, minute by minute, each order once."""
    return orders.groupBy("window", "shop").agg(F.count("*").alias("n"), F.sum("amount").alias("total"))

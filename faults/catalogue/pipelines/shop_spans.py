from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from tally import hopping, pipeline
from topics import orders


@pipeline(reads=orders, window=hopping("3 minutes", by="1 minute"), key="shop")
def shop_spans(orders: DataFrame) -> DataFrame:
    """Orders of the last three minutes per shop, every minute."""
    return orders.groupBy("window", "shop").agg(F.count("*").alias("n"), F.sum("amount").alias("total"))

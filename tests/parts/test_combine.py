"""Which pipelines of the catalogue can be combined from parts, and why the others need a query of their own."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

from tally.base.settings import REPO
from tally.catalog.load import load
from tally.parts import Refusal, combinable

PATHS = {
    "vendor_trips": None,
    "zone_demand": None,
    "cab_shifts": "its windows are sessions: an event that comes later can make one of two",
    "paid_rides": "it joins topics: an event meets others that come in other micro-batches",
}


@pytest.mark.parametrize("name", PATHS)
def test_the_path_of_each_pipeline_of_the_demo(spark: SparkSession, name: str) -> None:
    found = combinable(load(REPO / "spark").pipelines[name], spark)
    assert (found.reason if isinstance(found, Refusal) else None) == PATHS[name]


def test_no_pipeline_of_the_demo_is_left_out() -> None:
    assert load(REPO / "spark").pipelines.keys() == PATHS.keys()

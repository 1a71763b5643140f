"""What a check of a definition in a folder refuses it for."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tally.base.errors import DefinitionError
from tally.catalog.load import load
from tally.checks.definition import check

GROUPED = 'rides.groupBy("window", "zone")'


def refused(spark: SparkSession, folder: Path) -> DefinitionError:
    with pytest.raises(DefinitionError) as raised:
        check(spark, load(folder).pipelines["demand"])
    assert raised.value.pipeline == "demand" and raised.value.cure
    return raised.value

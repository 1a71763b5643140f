"""What Spark says of a state that it cannot load is told with its cure; anything else is left to others."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from tally.speed import state

# As Spark 4.2 says it, inside PySpark's own words.
TORN = """An exception was raised by the Python Proxy. Return Message: Traceback (most recent call last):
py4j.protocol.Py4JJavaError: An error occurred while calling o1198.save.
: org.apache.spark.SparkException: [CANNOT_LOAD_STATE_STORE.UNCATEGORIZED] An error occurred during loading state.
Caused by: java.io.EOFException"""
GONE = """[CANNOT_LOAD_STATE_STORE.CANNOT_READ_DELTA_FILE_NOT_EXISTS] An error occurred during loading state. \
Error reading delta file file:/home/checkpoints/demand/v1/g1/state/0/1/6.delta of HDFSStateStoreProvider[id]"""


@dataclass
class Named:
    name: str = "demand"


@pytest.mark.parametrize(("text", "names"), [(TORN, "UNCATEGORIZED"), (GONE, "/g1/state/0/1/6.delta)")])
def test_a_state_that_cannot_be_loaded_is_refused(text: str, names: str) -> None:
    found = state.refusal(RuntimeError(text), Named())  # type: ignore[arg-type]
    assert found is not None and names in found.message
    assert (found.pipeline, found.field) == ("demand", "state") and "tally rebuild demand" in (found.cure or "")


def test_another_error_is_none_of_its_business() -> None:
    assert state.refusal(RuntimeError("[DIVIDE_BY_ZERO] Division by zero."), Named()) is None  # type: ignore[arg-type]

"""Out of pages of Spark's, the line that says what is wrong, or a cure that it does not name: texts as they came."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from tally.base.errors import AnswerIsNo
from tally.speed.refusal import cause, of_state

PYTHON = """An exception was raised by the Python Proxy. Return Message: Traceback (most recent call last):
  File "/x/py4j/clientserver.py", line 644, in _call_proxy
    return_value = getattr(self.pool[obj_id], method)(*params)
                   ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
  File "/x/tally/speed/query.py", line 34, in apply
    done = commit.write(
           ^^^^^^^^^^^^^
"""
FULL = f"""{PYTHON}    raise Py4JJavaError(
py4j.protocol.Py4JJavaError: An error occurred while calling o2813.save.
: org.apache.spark.SparkException: [CANNOT_WRITE_STATE_STORE.CANNOT_COMMIT] Error writing state store files
\tat org.apache.spark.sql.errors.QueryExecutionErrors$.cannotCommit(QueryExecutionErrors.scala:2198)
Caused by: org.apache.hadoop.fs.FSError: java.io.IOException: No space left on device
\tat org.apache.hadoop.fs.RawLocalFileSystem$LocalFSFileOutputStream.write(RawLocalFileSystem.java:349)
\tSuppressed: org.apache.hadoop.fs.FSError: java.io.IOException: No space left on device
\t\t... 31 more
Caused by: java.io.IOException: No space left on device
\t... 40 more

=== Streaming Query ===
Identifier: shop_minutes [id = 99fc83a6]
Caused by: nothing, this is the plan
"""
CONTROL = f"""{PYTHON}sqlite3.OperationalError: database or disk is full

The above exception was the direct cause of the following exception:

Traceback (most recent call last):
sqlalchemy.exc.OperationalError: (sqlite3.OperationalError) database or disk is full
(Background on this error at: https://sqlalche.me/e/21/e3q8)
"""
WORKER = """An exception was thrown from the Python worker:
Traceback (most recent call last):
  File "/x/spark/pipelines/spoilt.py", line 9, in spoil
    raise ValueError("no such shop")
ValueError: no such shop
"""
REFUSED = AnswerIsNo(
    "the checkpoint is at micro-batch 5, the table already at 7",
    pipeline="demand", field="checkpoint", cure="put back the newest checkpoint",
)  # fmt: skip


@pytest.mark.parametrize(
    ("text", "said", "cure"),
    [
        (FULL, "No space left on device", None),
        (WORKER, "no such shop", None),
        (CONTROL, "(sqlite3.OperationalError) database or disk is full", None),
        (
            f"{PYTHON}tally.base.errors.AnswerIsNo: {REFUSED}\n",
            "demand: checkpoint: the checkpoint is at micro-batch 5, the table already at 7",
            "put back the newest checkpoint",
        ),
        ("[DELTA_TABLE_NOT_FOUND] There is no table.\nmore", "[DELTA_TABLE_NOT_FOUND] There is no table.", None),
        ("Some offsets were lost\n\tat x.y", "Some offsets were lost", None),
        ("", "", None),
    ],
    ids=["full disk", "a function", "full control store", "our own refusal", "marked by Spark", "plain", "nothing"],
)
def test_the_line_that_says_what_is_wrong(text: str, said: str, cure: str | None) -> None:
    assert cause(text) == (said, cure)


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
    found = of_state(RuntimeError(text), Named())  # type: ignore[arg-type]
    assert found is not None and names in found.message
    assert (found.pipeline, found.field) == ("demand", "state") and "tally rebuild demand" in (found.cure or "")


def test_another_error_is_none_of_its_business() -> None:
    assert of_state(RuntimeError("[DIVIDE_BY_ZERO] Division by zero."), Named()) is None  # type: ignore[arg-type]

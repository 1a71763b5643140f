"""A topic's columns from DDL text: one spelling for each type, and a refusal for what is no column."""

from __future__ import annotations

import pytest

from tally.base.errors import TallyError
from tally.catalog.schema import Field, parse_schema


def test_types_have_one_spelling() -> None:
    text = "a long, b integer NOT NULL, `c` Decimal(10 , 2), d: string, e array<struct<x: int, y: int>>,\n f real"
    assert parse_schema(text) == (
        Field(name="a", type="BIGINT"),
        Field(name="b", type="INT", required=True),
        Field(name="c", type="DECIMAL(10,2)"),
        Field(name="d", type="STRING"),
        Field(name="e", type="array<struct<x: int, y: int>>"),
        Field(name="f", type="FLOAT"),
    )


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("a INT, A INT", "twice"), ("_a INT", "itself"), ("window INT", "itself"), ("Window_Start TIMESTAMP", "itself"),
        ("a", "cannot read"), ("a MONEY", "has type"), ("a INT b INT", "has type"), ("1a INT", "cannot read"),
    ],
)  # fmt: skip
def test_what_is_no_schema_is_refused_with_a_cure(text: str, says: str) -> None:
    with pytest.raises(TallyError, match=says) as refused:
        parse_schema(text)
    assert refused.value.field == "schema" and refused.value.cure


@pytest.mark.parametrize("text", ["", "  ", ","])
def test_no_columns_at_all_are_no_topic(text: str) -> None:
    from tally import topic

    with pytest.raises(TallyError, match="event_time"):
        topic("rides", schema=text, event_time="at", lateness="1 minute")

"""Plain records, many at once and without Spark: flat JSON objects as producers write them, read by DuckDB.

Of each record it is either sure that it is valid so far, with the values that the reference decode would give, or says
nothing. Being sure is narrow on purpose: one object of numbers, texts without escapes, booleans and nulls.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cache, cached_property, reduce
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from tally.catalog.schema import Field

# A longer record is none that is written by the million, and some reader's limit may be near.
LONGEST = 16_384
LETTER = r'[^"\\\x00-\x1f]'
TEXT = f'"{LETTER}*"'
# Minus zero is left out: as an integer it is zero, and as a DOUBLE it is another one.
NUMBER = r"(?:(?:0|-?[1-9][0-9]{0,15})(?:\.[0-9]{1,20})?|-0\.[0-9]{0,17}[1-9][0-9]{0,17})(?:[eE][+-]?[0-9]{1,2})?"
# Epoch milliseconds between 1973 and 5138, or a time as text, in UTC.
TIME = (
    r"(?:[1-9][0-9]{11,13}"
    r'|"(?:19|[2-8][0-9])[0-9]{2}-[0-9]{2}-[0-9]{2}[T ](?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9]'
    r'(?:\.[0-9]{1,6})?(?:Z|\+00:00)?")'
)
DATE = r'"(?:19|[2-8][0-9])[0-9]{2}-[0-9]{2}-[0-9]{2}"'
DIGITS = {"TINYINT": 3, "SMALLINT": 5, "INT": 10, "BIGINT": 18}
VALUES = {"DOUBLE": NUMBER, "STRING": TEXT, "BOOLEAN": "true|false", "TIMESTAMP": TIME, "DATE": DATE} | {
    kind: rf"0|-?[1-9][0-9]{{0,{digits - 1}}}" for kind, digits in DIGITS.items()
}
ARROW = {
    "TINYINT": pa.int8(), "SMALLINT": pa.int16(), "INT": pa.int32(), "BIGINT": pa.int64(), "DOUBLE": pa.float64(),
    "STRING": pa.string(), "BOOLEAN": pa.bool_(), "TIMESTAMP": pa.timestamp("us", "UTC"), "DATE": pa.date32(),
}  # fmt: skip
READ_AS = {"STRING": "VARCHAR", "TIMESTAMP": "BIGINT"}
DECIMAL = re.compile(r"DECIMAL\((\d+),(\d+)\)")
# A DOUBLE says so many digits of a number exactly: what is read as one is written back as it was.
EXACT_DIGITS = 15


@dataclass(frozen=True, kw_only=True)
class Column:
    """A column whose values can be read here."""

    name: str
    value: str  # the expression that its values match
    arrow: pa.DataType
    read_as: str  # what DuckDB's JSON reader makes of a value


def column(field: Field) -> Column | None:
    """How a column is read; None where no value of its type is plain."""
    decimal = DECIMAL.fullmatch(field.type)
    if not field.name.isascii():
        return None
    if decimal:
        precision, scale = int(decimal[1]), int(decimal[2])
        whole = min(precision, EXACT_DIGITS) - scale
        if whole < 1:
            return None
        number = rf"(?:0|-?[1-9][0-9]{{0,{whole - 1}}})" + (rf"(?:\.[0-9]{{1,{scale}}})?" if scale else "")
        arrow = pa.decimal128(precision, scale)
        return Column(name=field.name, value=f'{number}|"{number}"', arrow=arrow, read_as=field.type)
    if field.type not in VALUES:
        return None
    read_as = READ_AS.get(field.type, field.type)
    return Column(name=field.name, value=VALUES[field.type], arrow=ARROW[field.type], read_as=read_as)


def other(names: Iterable[str]) -> str:
    """An expression for all names but these, in whatever case they are written; `"` is to follow."""
    rest = list(names)
    heads = sorted({name[0].lower() for name in rest if name})
    spelled = {head: "".join(sorted({head, head.upper()})) for head in heads}
    ways = [f'[^"\\\\\\x00-\\x1f{"".join(spelled.values())}]{LETTER}*']
    ways += [f"[{spelled[head]}]{other(n[1:] for n in rest if n and n[0].lower() == head)}" for head in heads]
    return f"(?:{'|'.join(ways)})" + ("" if "" in rest else "?")


@dataclass(frozen=True)
class Reader:
    """Reads the plain ones among a topic's records."""

    schema: tuple[Field, ...]
    columns: list[Column] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "columns", [c for c in map(column, self.schema) if c is not None])

    @cached_property
    def grammar(self) -> str:
        """What a plain record matches; a name may stand there twice."""
        values: dict[str, list[str]] = {"null": []}
        for one in self.columns:
            values.setdefault(one.value, []).append(one.name)
        members = [f'"(?:{"|".join(names)})": ?(?:{value}|null)' for value, names in values.items() if names]
        unread = [one.name for one in self.schema if one.name not in {c.name for c in self.columns}]
        if unread:
            members.append(f'"(?:{"|".join(unread)})": ?null')
        members.append(f'"{other(f.name for f in self.schema)}": ?(?:{TEXT}|{NUMBER}|true|false|null)')
        member = f"(?:{'|'.join(members)})"
        return rf"\A\{{(?:{member}, ?)*{member}\}}\z"

    @property
    def arrow(self) -> pa.StructType:
        return pa.struct([(one.name, one.arrow) for one in self.columns])

    @property
    def names(self) -> list[str]:
        return [one.name for one in self.columns]

    @property
    def ddl(self) -> str:
        return ", ".join(f"`{one.name}` {one.type}" for one in self.schema if one.name in self.names)

    def covers(self, name: str) -> bool:
        """Whether a column is among those that can be read here, and DuckDB tells them all apart."""
        return name in self.names and all(one.name.isascii() for one in self.schema)

    def batches(self, given: Iterator[pa.Array]) -> Iterator[pa.Array]:
        """What is read of batches of records."""
        for values in given:
            yield self.read(values)

    def read(self, values: pa.Array) -> pa.StructArray:
        """A struct of the columns for each record that it is sure of, null for all others."""
        texts = as_text(values)
        plain = pc.match_substring_regex(texts, self.grammar)
        plain = pc.fill_null(pc.and_(plain, pc.less_equal(pc.binary_length(texts), LONGEST)), False)
        if plain.false_count:
            texts = pc.if_else(plain, texts, pa.scalar(None, pa.string()))
        made = self.made(texts)
        sure = self.sure(texts, made)
        return pa.StructArray.from_arrays(made, fields=list(self.arrow), mask=pc.invert(sure))

    def made(self, texts: pa.Array) -> list[pa.Array]:
        """The columns as DuckDB reads them, null where it reads none."""
        found = transformed(texts, {one.name: one.read_as for one in self.columns})
        times = [at for at, one in enumerate(self.columns) if pa.types.is_timestamp(one.arrow)]
        for at in times:
            found[at] = pc.multiply(found[at], 1000).cast(pa.timestamp("us"))
        left = [found[at].is_null() for at in times if found[at].null_count > texts.null_count]
        if left:
            without = pc.and_(reduce(pc.or_, left), texts.is_valid())
            as_texts = transformed(texts.filter(without), {self.columns[at].name: "TIMESTAMP" for at in times})
            for at, read in zip(times, as_texts, strict=True):
                found[at] = pc.replace_with_mask(found[at], without, pc.coalesce(found[at].filter(without), read))
        return [one.cast(column.arrow) for one, column in zip(found, self.columns, strict=True)]

    def sure(self, texts: pa.Array, made: list[pa.Array]) -> pa.Array:
        """Whether no declared name stands twice, and each column without a value has none."""
        names = pc.count_substring(texts, '":')
        some = [one.is_valid().cast(pa.int32()) for one in made if one.null_count > texts.null_count]
        there = reduce(pc.add, some, pa.scalar(len(made) - len(some), pa.int32()))
        return pc.fill_null(pc.equal(names, there), False)


def transformed(texts: pa.Array, kinds: dict[str, str]) -> list[pa.Array]:
    """The columns that DuckDB's JSON reader makes of the texts."""
    connection = duck()
    connection.register("given", pa.table({"text": texts}))
    made = connection.sql(f"SELECT json_transform(text, '{json.dumps(kinds)}') AS made FROM given").to_arrow_table()
    return [one for one in made["made"].combine_chunks().flatten()]


def as_text(values: pa.Array) -> pa.Array:
    """The records as text, null where one is not valid UTF-8."""
    try:
        return values.cast(pa.string())
    except pa.ArrowInvalid:
        ascii_only = pc.match_substring_regex(values, r"\A[\x00-\x7f]*\z")
        return pc.if_else(ascii_only, values, pa.scalar(None, values.type)).cast(pa.string())


@cache
def duck() -> Any:
    """This process's DuckDB, on one thread: Spark's tasks are the parallel ones."""
    import duckdb

    return duckdb.connect(config={"threads": 1})

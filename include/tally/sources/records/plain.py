"""Plain records, many at once and without Spark: flat JSON objects as producers write them, read by DuckDB.

Of a record it either is sure that it is one object of the declared types, and has the values that the reference decode
gives, or it says nothing. It is sure of little on purpose: numbers, texts without escapes, booleans, nulls.
"""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property, reduce
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tally.catalog.schema import Field
from tally.lake.duck import connected

# A batch of ten thousand is sent to Python at once, and a limit of some reader may be near.
LONGEST = 4_096
# Each reading compiles its expression and plans its query anew: a millisecond or two. Spark holds the rows meanwhile.
AT_ONCE = 8 << 20
LETTER = r'[^"\\\x00-\x1f]'
TEXT = f'"{LETTER}*"'
# Minus zero is left out, of which each reader may think as it likes. No value here can fail to be made: what has none
# after it was read had none before.
NUMBER = r"(?:(?:0|-?[1-9][0-9]{0,14})(?:\.[0-9]{1,20})?|-0\.[0-9]{0,17}[1-9][0-9]{0,17})(?:[eE][+-]?[0-9]{1,2})?"
DAY = (
    r"(?:19|[2-8][0-9])[0-9]{2}-(?:(?:0[1-9]|1[0-2])-(?:0[1-9]|1[0-9]|2[0-8])"
    r"|(?:0[13-9]|1[0-2])-(?:29|30)|(?:0[13578]|1[02])-31)"
)
# Epoch milliseconds between 1973 and 5138, or a time as text, in UTC.
TIME = (
    rf'(?:[1-9][0-9]{{11,13}}|"{DAY}[T ](?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9]'
    r'(?:\.[0-9]{1,6})?(?:Z|\+00:00)?")'
)
VALUES = {
    "TINYINT": r"0|-?(?:[1-9][0-9]?|1[01][0-9])",
    "SMALLINT": r"0|-?(?:[1-9][0-9]{0,3}|[12][0-9]{4})",
    "INT": r"0|-?(?:[1-9][0-9]{0,8}|1[0-9]{9})",
    "BIGINT": r"0|-?[1-9][0-9]{0,17}",
    "DOUBLE": NUMBER, "STRING": TEXT, "BOOLEAN": "true|false", "TIMESTAMP": TIME, "DATE": f'"{DAY}"',
}  # fmt: skip
ARROW = {
    "TINYINT": pa.int8(), "SMALLINT": pa.int16(), "INT": pa.int32(), "BIGINT": pa.int64(), "DOUBLE": pa.float64(),
    "STRING": pa.string(), "BOOLEAN": pa.bool_(), "TIMESTAMP": pa.timestamp("us", "UTC"), "DATE": pa.date32(),
}  # fmt: skip
# By bytes: Arrow says of many texts only that one of them is none.
UTF8 = (
    r"\A(?:[\x00-\x7f]|[\xc2-\xdf][\x80-\xbf]|\xe0[\xa0-\xbf][\x80-\xbf]|\xed[\x80-\x9f][\x80-\xbf]"
    r"|[\xe1-\xec\xee\xef][\x80-\xbf]{2}|\xf0[\x90-\xbf][\x80-\xbf]{2}|[\xf1-\xf3][\x80-\xbf]{3}"
    r"|\xf4[\x80-\x8f][\x80-\xbf]{2})*\z"
)
READ_AS = {"STRING": "VARCHAR", "TIMESTAMP": "BIGINT"}
DECIMAL = re.compile(r"DECIMAL\((\d+),(\d+)\)")
# DuckDB reads a number by way of a DOUBLE, which has so many digits as they were written. Of these, so many behind the
# point.
EXACT_DIGITS, MOST_BEHIND = 15, 6
# Letters of the expression for all records of a topic: it is compiled at each reading, so many in 0.3 seconds, and four
# times as many not at all. A hundred names of twenty letters make as many.
MOST_GRAMMAR = 200_000
# What the reference looks at more closely where a topic has decimals.
SUSPECT = r"[eE][+-]?[0-9]{4}"


@dataclass(frozen=True, kw_only=True)
class Column:
    """A column whose values can be read here."""

    name: str
    value: str  # the expression that its values match
    arrow: pa.DataType
    read_as: str  # the type that DuckDB's JSON reader makes


def column(field: Field) -> Column | None:
    """How a column is read; None where no value of its type is plain."""
    decimal = DECIMAL.fullmatch(field.type)
    if decimal:
        precision, scale = int(decimal[1]), int(decimal[2])
        behind = min(scale, MOST_BEHIND)
        whole = min(precision - scale, EXACT_DIGITS - behind)
        if whole < 1:
            return None
        number = rf"(?:0|-?[1-9][0-9]{{0,{whole - 1}}})" + (rf"(?:\.[0-9]{{1,{behind}}})?" if behind else "")
        number += "".join(rf"|-0\.0{{{zeros}}}[1-9][0-9]{{0,{behind - zeros - 1}}}" for zeros in range(behind))
        arrow = pa.decimal128(precision, scale)
        return Column(name=field.name, value=f'(?:{number})|"(?:{number})"', arrow=arrow, read_as="VARCHAR")
    if field.type not in VALUES or not field.name.isascii():
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

    @cached_property
    def columns(self) -> list[Column]:
        return [one for one in map(column, self.schema) if one is not None]

    @property
    def covers(self) -> bool:
        """Whether a record with a value in each column can be plain, and the names are not too many, or too long."""
        if len(self.columns) < len(self.schema):
            return False
        try:
            return len(self.grammar) <= MOST_GRAMMAR
        except RecursionError:
            return False

    def batches(self, given: Iterator[pa.Array]) -> Iterator[pa.Array]:
        """What is read of batches of records, several of them at once."""
        held, size = list[pa.Array](), 0
        for values in given:
            held, size = [*held, values], size + values.nbytes
            if size >= AT_ONCE:
                yield self.read(pa.concat_arrays(held))
                held, size = [], 0
        if held:
            yield self.read(pa.concat_arrays(held))

    def read(self, values: pa.Array) -> pa.StructArray:
        """A struct of the columns for each record that it is sure of, null for all others."""
        texts = as_text(values)
        plain = pc.fill_null(pc.match_substring_regex(texts, self.grammar), False)
        if plain.false_count:
            texts = pc.if_else(plain, texts, pa.scalar(None, pa.string()))
        try:
            made = self.made(texts)
        except duck_error():  # of one text; which one, it does not say
            return pa.nulls(len(values), pa.struct([(one.name, one.arrow) for one in self.columns]))
        unsure = pc.invert(self.once(texts, made))
        fields = [pa.field(one.name, one.arrow) for one in self.columns]
        return pa.StructArray.from_arrays(made, fields=fields, mask=unsure)

    @cached_property
    def grammar(self) -> str:
        """What a plain record matches, but for names that stand in it twice."""
        values: dict[str, list[str]] = {}
        for one in self.columns:
            values.setdefault(one.value, []).append(one.name)
        members = [f'"(?:{"|".join(names)})": ?(?:{value}|null)' for value, names in values.items()]
        members.append(f'"{other(one.name for one in self.schema)}": ?(?:{TEXT}|{NUMBER}|true|false|null)')
        member = f"(?:{'|'.join(members)})"
        return rf"\A\{{(?:{member}, ?)*{member}\}}\z"

    @cached_property
    def twice(self) -> str:
        """What a plain record matches in which a declared name stands twice."""
        return "|".join(f'"{one.name}":.*"{one.name}":' for one in self.columns)

    @cached_property
    def decimals(self) -> bool:
        return any(pa.types.is_decimal(one.arrow) for one in self.columns)

    def made(self, texts: pa.Array) -> list[pa.Array]:
        """The columns as DuckDB reads them, null where a record has no value."""
        found = transformed(texts, {one.name: one.read_as for one in self.columns})
        times = [at for at, one in enumerate(self.columns) if pa.types.is_timestamp(one.arrow)]
        for at in times:
            found[at] = pc.multiply(found[at], 1000).cast(pa.timestamp("us"))
        left = [found[at].is_null() for at in times if found[at].null_count > texts.null_count]
        if left:  # times as text
            without = pc.and_(reduce(pc.or_, left), texts.is_valid())
            as_texts = transformed(texts.filter(without), {self.columns[at].name: "TIMESTAMP" for at in times})
            for at, read in zip(times, as_texts, strict=True):
                found[at] = pc.replace_with_mask(found[at], without, pc.coalesce(found[at].filter(without), read))
        return [one.cast(column.arrow) for one, column in zip(found, self.columns, strict=True)]

    def once(self, texts: pa.Array, made: list[pa.Array]) -> pa.Array:
        """Whether no declared name stands twice in a record; false where there is none."""
        some = [one.is_valid().cast(pa.int32()) for one in made if one.null_count > texts.null_count]
        there = reduce(pc.add, some, pa.scalar(len(made) - len(some), pa.int32()))
        # As many names as values: each declared one once, and no other. Else it is looked at more closely.
        simple = pc.and_(pc.equal(names_in(texts), there), texts.is_valid())
        rest = pc.and_(pc.invert(simple), texts.is_valid())
        if not rest.true_count:
            return simple
        left = texts.filter(rest)
        bad = pc.match_substring_regex(left, self.twice)
        if self.decimals:
            bad = pc.or_(bad, pc.match_substring_regex(left, SUSPECT))
        return pc.replace_with_mask(simple, rest, pc.invert(bad))


def as_text(values: pa.Array) -> pa.Array:
    """The records as text, null where one is not valid UTF-8, or long."""
    if (pc.max(pc.binary_length(values)).as_py() or 0) > LONGEST:
        values = pc.if_else(pc.less_equal(pc.binary_length(values), LONGEST), values, pa.scalar(None, values.type))
    try:
        return values.cast(pa.string())
    except pa.ArrowInvalid:
        valid = pc.match_substring_regex(values, UTF8)
        return pc.if_else(valid, values, pa.scalar(None, values.type)).cast(pa.string())


def names_in(texts: pa.Array) -> pa.Array:
    """How often `":` stands in each text: at least the number of its names."""
    _, offsets, letters = texts.buffers()
    bounds = np.frombuffer(offsets, np.int32)[texts.offset : texts.offset + len(texts) + 1]
    if letters is None or not len(texts):
        return pa.array(np.zeros(len(texts), np.int32))
    every = np.frombuffer(letters, np.uint8)[bounds[0] : bounds[-1]]
    colons = np.flatnonzero(every[1:] == ord(":"))
    colons = colons[every[colons] == ord('"')] + bounds[0]
    return pa.array(np.diff(np.searchsorted(colons, bounds)), pa.int32())


def transformed(texts: pa.Array, kinds: dict[str, str]) -> list[pa.Array]:
    """The columns that DuckDB's JSON reader makes of the texts."""
    connection = duck()
    connection.register("given", pa.table({"text": texts}))
    made = connection.sql(f"SELECT json_transform(text, '{json.dumps(kinds)}') AS made FROM given").to_arrow_table()
    return list(made["made"].combine_chunks().flatten())


def duck_error() -> type[Exception]:
    """What DuckDB raises."""
    import duckdb

    found: type[Exception] = duckdb.Error
    return found


def duck() -> Any:
    """This thread's DuckDB, on one thread: Spark's tasks are the parallel ones."""
    if not hasattr(mine, "connection"):
        mine.connection = connected()
        mine.connection.execute("SET threads = 1")
    return mine.connection


mine = threading.local()

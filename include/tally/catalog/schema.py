"""A topic's columns from DDL text, without Spark."""

from __future__ import annotations

import re
from dataclasses import dataclass

from tally.base.errors import TallyError

SIMPLE = {
    "STRING", "BOOLEAN", "TINYINT", "BYTE", "SMALLINT", "SHORT", "INT", "INTEGER", "BIGINT", "LONG", "FLOAT", "REAL",
    "DOUBLE", "DATE", "TIMESTAMP",
}  # fmt: skip
SPELLING = {"INTEGER": "INT", "LONG": "BIGINT", "SHORT": "SMALLINT", "BYTE": "TINYINT", "REAL": "FLOAT"}
RESERVED = {"window", "window_start", "window_end"}
DECIMAL = re.compile(r"(?:DECIMAL|NUMERIC|DEC)(?:\(\s*(\d+)\s*(?:,\s*(\d+)\s*)?\))?$")
COLUMN = re.compile(r"\s*`?(?P<name>[A-Za-z_]\w*)`?\s*:?\s+(?P<type>.+?)(?P<required>\s+NOT\s+NULL)?\s*$", re.I | re.S)


@dataclass(frozen=True, kw_only=True)
class Field:
    """One column: its name, its Spark type in upper case, and whether a record without it is refused."""

    name: str
    type: str
    required: bool = False


def parse_schema(ddl: str) -> tuple[Field, ...]:
    """The columns of DDL text; an unknown type, a doubled or a reserved name is refused."""
    fields: list[Field] = []
    for text in split_columns(ddl):
        match = COLUMN.match(text)
        if not match:
            raise TallyError(
                f"cannot read column {text.strip()!r}", field="schema", cure='write "name TYPE, name TYPE"'
            )
        name = match["name"]
        if name.startswith("_") or name.lower() in RESERVED:
            raise TallyError(f"column {name!r} is a name Tally uses itself", field="schema", cure="rename the column")
        if name.lower() in (field.name.lower() for field in fields):
            raise TallyError(f"column {name!r} is there twice", field="schema", cure="remove one")
        fields.append(Field(name=name, type=parse_type(name, match["type"]), required=bool(match["required"])))
    return tuple(fields)


def parse_type(name: str, text: str) -> str:
    """The canonical spelling of a column's type; arrays, maps and structs are passed on to Spark as written."""
    upper = re.sub(r"\s+", " ", text.strip()).upper()
    if upper in SIMPLE:
        return SPELLING.get(upper, upper)
    decimal = DECIMAL.match(upper)
    if decimal and int(decimal[2] or 0) <= int(decimal[1] or 10) <= 38:
        return f"DECIMAL({decimal[1] or 10},{decimal[2] or 0})"
    if re.match(r"(ARRAY|MAP|STRUCT)\s*<.*>$", upper):
        return re.sub(r"\s+", " ", text.strip())
    raise TallyError(
        f"column {name!r} has type {text.strip()!r}",
        field="schema",
        cure=f"use one of {', '.join(sorted(SIMPLE))}, DECIMAL",
    )


def split_columns(ddl: str) -> list[str]:
    """The text between the commas that stand in no bracket."""
    parts, depth, start = [], 0, 0
    for at, char in enumerate(ddl):
        depth += (char in "<(") - (char in ">)")
        if char == "," and depth == 0:
            parts.append(ddl[start:at])
            start = at + 1
    parts.append(ddl[start:])
    return [part for part in parts if part.strip()]

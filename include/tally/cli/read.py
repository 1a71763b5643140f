"""`tally read`: rows as a table, CSV, JSON or parquet.

Instants are in ISO 8601 with a Z, decimals are text: nothing is rounded.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated, Any, Literal, TextIO

import typer

from tally.base.errors import TallyError
from tally.base.json_values import finite
from tally.base.safe_text import printable, quoted
from tally.cli.output import Json, note, print_document, say, show

if TYPE_CHECKING:
    from tally.serving.read import Rows


MOST = 100_000  # rows of a table: more of them are for a file
Format = Literal["table", "csv", "json", "parquet"]
Layer = Literal["served", "speed", "batch"]


def read(
    pipeline: Annotated[str, typer.Argument(help="Whose rows.")],
    start: Annotated[
        str | None, typer.Option("--from", help="Windows that start at this time (ISO 8601, UTC) or later.")
    ] = None,
    end: Annotated[str | None, typer.Option("--to", help="Windows that start before this time.")] = None,
    layer: Annotated[
        Layer, typer.Option(help="served: batch where sealed, stream elsewhere; or speed, or batch alone.")
    ] = "served",
    format: Annotated[str | None, typer.Option(help="table, csv, json or parquet.")] = None,
    output: Annotated[Path | None, typer.Option(help="Write to this file instead of stdout.")] = None,
    limit: Annotated[
        int, typer.Option(help="Most rows of a table on the screen; the newest are shown.", min=1, max=MOST)
    ] = 40,
    json: Json = False,
) -> None:
    """Read a pipeline's rows, one per window and key, each with its state and revision."""
    from tally.base.duration import parse_instant, to_millis
    from tally.catalog.load import catalogue
    from tally.serving import read as reader

    chosen = which_format(format, json, output)
    wanted = catalogue().pipeline(pipeline)
    from_ms = to_millis(parse_instant(start, field="--from")) if start is not None else None
    to_ms = to_millis(parse_instant(end, field="--to")) if end is not None else None
    if from_ms is not None and to_ms is not None and to_ms < from_ms:
        raise TallyError(
            "the range ends before it begins", pipeline=pipeline, field="--to", cure="swap --from and --to"
        )
    found = reader.rows(wanted, from_ms, to_ms, layer)
    if output:
        count = write_file(found, chosen, output)
        document = {"output": str(output), "format": chosen, "rows": count}
        show(document, json, lambda: say(f"{count:,} rows in {output}"))
    elif chosen == "json":
        print_document(documents(found))
    elif chosen == "table":
        count = print_table(found, limit)
        if not count and not reader.written(wanted):
            note(f"nothing written yet: tally stream {pipeline}")
    elif chosen == "csv":
        write_csv(found, sys.stdout)
        sys.stdout.flush()
    else:
        write_parquet_bytes(found, sys.stdout.buffer)


def which_format(format: str | None, json: bool, output: Path | None) -> Format:
    """The format asked for, by name, by --json or by the file's ending; what contradicts itself is refused."""
    named = format if format is not None else "json" if json and not output else None
    ending = output.suffix.lstrip(".") if output else ""
    chosen = named if named is not None else ending if ending in ("csv", "json", "parquet") else "table"
    if chosen not in ("table", "csv", "json", "parquet"):
        raise TallyError(f"no format {quoted(chosen)}", field="--format", cure="one of: table, csv, json, parquet")
    if json and not output and chosen != "json":
        raise TallyError(f"--json prints JSON, not {chosen}", field="--format", cure="leave one of the two out")
    if output and chosen == "table":
        raise TallyError(
            "a table is for the screen", field="--format", cure="csv, json or parquet, by --format or the file's ending"
        )
    if chosen == "parquet" and not output and sys.stdout.isatty():
        raise TallyError("parquet is no text for a terminal", field="--output", cure="--output FILE, or pipe it")
    return chosen  # type: ignore[return-value]


NUMBERS = ("DECIMAL", "TINYINT", "SMALLINT", "INTEGER", "BIGINT", "FLOAT", "DOUBLE")
CHUNK = 10_000  # rows turned into text at a time


def plain(found: Rows) -> str:
    """SQL of each column in the form in which it is printed."""
    from tally.base.sql_text import quoted as identifier

    return ", ".join(
        f"{printed('r.' + identifier(name), kind)} AS {identifier(name)}" for name, kind in found.columns.items()
    )


def printed(column: str, kind: str) -> str:
    """SQL of a column as text where its own form would lose something."""
    if kind.startswith("DECIMAL") and not kind.endswith("]"):
        return f"CAST({column} AS VARCHAR)"
    if kind == "BLOB":
        return f"base64({column})"
    if kind == "DATE":
        return f"strftime({column}, '%Y-%m-%d')"
    if kind.startswith("TIMESTAMP") and not kind.endswith("]"):
        zone = "Z" if kind == "TIMESTAMPTZ" else ""
        shortest = [f"WHEN epoch_us({column}) % {size} = 0 THEN strftime({column}, '%Y-%m-%dT%H:%M:%S{digits}{zone}')"
                    for size, digits in ((1_000_000, ""), (1000, ".%g"), (1, ".%f"))]  # fmt: skip
        return f"CASE {' '.join(shortest)} END"
    return column


def chunks(found: Rows) -> Iterator[list[tuple[Any, ...]]]:
    """The printable rows, in order, so many at a time."""
    result = found.query(plain(found))
    while chunk := result.fetchmany(CHUNK):
        yield chunk


def documents(found: Rows) -> list[dict[str, Any]]:
    """One JSON object a row; what JSON has no number for, such as NaN, is text."""
    return [
        {name: finite(value) for name, value in zip(found.columns, row, strict=True)}
        for chunk in chunks(found)
        for row in chunk
    ]


def write_csv(found: Rows, out: TextIO) -> int:
    """RFC 4180 with a header; null is nothing between the commas, empty text is a pair of quotes."""
    out.write(",".join(map(cell, found.columns)) + "\n")
    count = 0
    for chunk in chunks(found):
        out.writelines(",".join(map(cell, row)) + "\n" for row in chunk)
        count += len(chunk)
    return count


def cell(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, list | dict):
        text = json.dumps(value, default=str, ensure_ascii=False)
    else:
        text = str(value).lower() if isinstance(value, bool) else str(finite(value))
    if text == "" or any(char in text for char in ',"\r\n'):
        return '"' + text.replace('"', '""') + '"'
    return text


def write_parquet_bytes(found: Rows, out: IO[bytes]) -> None:
    """The bytes of one parquet file."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "rows.parquet"
        copy_parquet(found, file)
        with file.open("rb") as source:
            shutil.copyfileobj(source, out)
    out.flush()


def write_file(found: Rows, format: str, output: Path) -> int:
    """Write the rows to a file that appears whole or not at all; how many there are."""
    draft = output.with_name(f".{output.name}.{os.getpid()}")
    try:
        if format == "parquet":
            count = copy_parquet(found, draft)
        elif format == "csv":
            with draft.open("w", encoding="utf-8", newline="") as out:
                count = write_csv(found, out)
        else:
            rows = documents(found)
            draft.write_text(json.dumps(rows, default=str, ensure_ascii=False) + "\n", encoding="utf-8")
            count = len(rows)
        draft.replace(output)
    except OSError as error:
        raise TallyError(
            f"cannot write {output}: {error.strerror or error}",
            field="--output",
            cure="name a file in a folder you may write to",
        ) from None
    finally:
        draft.unlink(missing_ok=True)
    return count


def copy_parquet(found: Rows, file: Path) -> int:
    """Write the rows, in order and in their own types, to a parquet file; how many there are."""
    import pyarrow.parquet

    table = found.arrow()
    pyarrow.parquet.write_table(table, file)
    return int(table.num_rows)


def print_table(found: Rows, limit: int) -> int:
    """The newest rows as a table, and a word on how many older ones there are; how many there are in all."""
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    total = found.count()
    table = Table(box=box.SIMPLE_HEAD, show_edge=False)
    for name, kind in found.columns.items():
        number = kind.startswith(NUMBERS) and not kind.endswith("]")
        table.add_column(name, justify="right" if number else "left", no_wrap=name.startswith("window_"))
    for row in found.query(plain(found), last=limit).fetchall():
        cells = (f"{value:.10g}" if isinstance(value, float) else cell(value) for value in row)
        table.add_row(*(Text(printable(text)) for text in cells))  # never markup, whatever an event's key looks like
    console = Console(highlight=False)
    if not console.is_terminal:
        console.width = 1000
    console.print(table)
    if total > limit:
        console.print(f"… and {total - limit:,} older rows: --limit, --from and --to, or --format csv", style="dim")
    return total

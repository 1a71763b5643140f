"""`tally read`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Literal

import typer

from tally.cli.output import Json, note, print_document, say, show
from tally.errors import TallyError
from tally.words import quoted

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
    from tally.catalog.duration import parse_instant, to_millis
    from tally.catalog.load import catalogue
    from tally.cli import rows as out
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
        count = out.write_file(found, chosen, output)
        document = {"output": str(output), "format": chosen, "rows": count}
        show(document, json, lambda: say(f"{count:,} rows in {output}"))
    elif chosen == "json":
        print_document(out.documents(found))
    elif chosen == "table":
        count = out.print_table(found, limit)
        if not count and not reader.written(wanted):
            note(f"nothing written yet: tally stream {pipeline}")
    elif chosen == "csv":
        out.write_csv(found, sys.stdout)
        sys.stdout.flush()
    else:
        out.write_parquet_bytes(found, sys.stdout.buffer)


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

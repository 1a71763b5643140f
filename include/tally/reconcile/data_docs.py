"""Runs named checks over small tables with Great Expectations, and writes Data Docs that a person can open."""

from __future__ import annotations

import logging
import os
import shutil
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import pandas as pd

from tally.base.settings import settings
from tally.host import lock

os.environ.setdefault("GX_ANALYTICS_ENABLED", "false")
# It tells of each file that it saves, in lines by the dozen between those of a task's own log.
logging.getLogger("great_expectations").setLevel(logging.WARNING)

# Judgements of a pipeline whose pages are kept. The index page is written anew each time and lists them all: with four
# pipelines of fifty it takes a second; the audit table and the control store keep older verdicts.
KEPT = 50
# A page lists every row that failed, by window and key, for tables of at most so many rows: one of 100,000 would not
# open. Larger tables show the first values, and the audit table has the rows.
LISTED = 2000
SHOWN = 20
PATIENCE = 600.0  # seconds to wait for the judgements of other pipelines: one to three each, far more on a busy machine


@dataclass(frozen=True, kw_only=True)
class Check:
    """One expectation by the name of its class, in plain words."""

    says: str
    kind: str
    arguments: dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Checked:
    """The checks that failed, each with the first rows that made it fail, and the pages that show all of them."""

    failed: list[tuple[Check, str]]
    index: Path
    page: Path


@dataclass(frozen=True, kw_only=True)
class Table:
    """A small table, the checks on it in order, and the columns that name its rows on a page."""

    name: str
    rows: pd.DataFrame
    checks: Sequence[Check]
    index: tuple[str, ...] = ()


def warm() -> None:
    """Begin to import what `check` needs, while a JVM works: it takes seconds.

    No daemon: an interpreter that ends beneath a thread which loads libraries may crash, so it waits for this one.
    """
    threading.Thread(target=import_module, args=("great_expectations.expectations",), name="warm").start()


def check(pipeline: str, run: str, tables: Sequence[Table]) -> Checked:
    """Run all checks and write their pages, one process at a time; the page is the first one with a failure."""
    # Before the lock: importing takes seconds, on a busy machine half a minute, and others wait meanwhile.
    import great_expectations as gx
    import great_expectations.expectations
    from great_expectations.data_context.types.base import ProgressBarsConfig

    with lock.hold(settings().home / "run" / "data-docs.lock", wait=PATIENCE):
        context = gx.get_context(mode="file", project_root_dir=settings().home)
        context.variables.progress_bars = ProgressBarsConfig(globally=False)
        named = gx.RunIdentifier(run_name=run)
        results = [validate(context, f"{pipeline}.{table.name}", table, named) for table in tables]
        for table in tables:
            prune(f"{pipeline}.{table.name}")
        written = [identifier(result, named) for result in results]
        suites = [suite_identifier(f"{pipeline}.{table.name}") for table in tables]
        context.build_data_docs(resource_identifiers=[*written, *suites])
    bad = next((at for at, result in enumerate(results) if not result.success), 0)
    failed = [found for table, result in zip(tables, results, strict=True) for found in failures(table, result)]
    return Checked(failed=failed, index=site() / "index.html", page=page(written[bad]))


def validate(context: Any, name: str, table: Table, run: Any) -> Any:
    """One table against its suite; suite and definition are written anew, so they are always those of this code."""
    import great_expectations as gx
    import great_expectations.expectations as gxe

    source = context.data_sources.add_or_update_pandas(name)
    batch = source.add_dataframe_asset(name).add_batch_definition_whole_dataframe("whole")
    expectations = [getattr(gxe, one.kind)(description=one.says, **one.arguments) for one in table.checks]
    suite = context.suites.add_or_update(gx.ExpectationSuite(name=name, expectations=expectations))
    definition = context.validation_definitions.add_or_update(
        gx.ValidationDefinition(name=name, data=batch, suite=suite)
    )
    format = "COMPLETE" if len(table.rows) <= LISTED else "SUMMARY"
    shape: dict[str, Any] = {"result_format": format, "partial_unexpected_count": SHOWN}
    if table.index:
        shape["unexpected_index_column_names"] = list(table.index)
    return definition.run(batch_parameters={"dataframe": table.rows}, result_format=shape, run_id=run)


def failures(table: Table, result: Any) -> list[tuple[Check, str]]:
    """The failed checks of a table with what was found, in words."""
    by_words = {one.says: one for one in table.checks}
    found = []
    for one in result.results:
        if not one.success:
            check = by_words[one.expectation_config.description]
            found.append((check, observed(one)))
    return found


def observed(result: Any) -> str:
    """The first unexpected values of an expectation, or why it could not be evaluated."""
    errors = [info["exception_message"] for info in nested(result.exception_info) if info.get("raised_exception")]
    if errors:
        return str(errors[0]).splitlines()[0]
    rows = result.result.get("partial_unexpected_index_list") or result.result.get("partial_unexpected_list") or []
    told = [", ".join(f"{k} {plain(v)}" for k, v in row.items()) if isinstance(row, dict) else str(row) for row in rows]
    more = int(result.result.get("unexpected_count", len(told))) - 3
    return "; ".join(told[:3]) + (f"; and {more} more" if more > 0 else "")


def nested(info: Any) -> list[dict[str, Any]]:
    """Great Expectations keeps one such record, or one per metric."""
    if not info:
        return []
    return [info] if "raised_exception" in info else [one for one in info.values() if isinstance(one, dict)]


def plain(value: Any) -> Any:
    return value.item() if hasattr(value, "item") else value


def identifier(result: Any, run: Any) -> Any:
    from great_expectations.data_context.types.resource_identifiers import (
        ExpectationSuiteIdentifier,
        ValidationResultIdentifier,
    )

    return ValidationResultIdentifier(
        expectation_suite_identifier=ExpectationSuiteIdentifier(name=result.suite_name),
        run_id=run,
        batch_identifier=result.batch_id,
    )


def suite_identifier(name: str) -> Any:
    from great_expectations.data_context.types.resource_identifiers import ExpectationSuiteIdentifier

    return ExpectationSuiteIdentifier(name=name)


def site() -> Path:
    """The folder of the Data Docs."""
    return settings().home / "gx" / "uncommitted" / "data_docs" / "local_site"


def page(identifier: Any) -> Path:
    return site() / "validations" / Path(*identifier.to_tuple()[:-1]) / f"{identifier.to_tuple()[-1]}.html"


def prune(suite: str) -> None:
    """Remove the results and pages of all but the newest judgements of a suite, whose dots are folders there."""
    for root in (site() / "validations", site().parents[1] / "validations"):
        runs = sorted((root / Path(*suite.split("."))).glob("*"), key=lambda path: path.stat().st_mtime)
        for old in runs[:-KEPT]:
            shutil.rmtree(old, ignore_errors=True)

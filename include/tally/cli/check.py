"""`tally check`: the definitions, or with --setup the machine."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from tally.cli.output import Json, say, show

Setup = Annotated[bool, typer.Option("--setup", help="Check this machine instead: what is missing, and how to get it.")]
NoSpark = Annotated[bool, typer.Option("--no-spark", help="Only what can be checked without a Spark session.")]


def check(setup: Setup = False, no_spark: NoSpark = False, json: Json = False) -> None:
    """Load and check every definition: file, line, field and cure of each fault; exit code 1 when there is one."""
    ok = _check_machine(json) if setup else _check_definitions(json, spark=not no_spark)
    if not ok:
        raise typer.Exit(1)


def _check_machine(json: bool) -> bool:
    from tally.embedded.doctor import examine

    findings = examine()
    ok = all(finding.ok for finding in findings)

    def lines() -> None:
        for finding in findings:
            say(f"{'ok     ' if finding.ok else 'missing'}  {finding.name}: {finding.found}")
            if not finding.ok:
                say(f"         cure: {finding.cure}")

    show({"ok": ok, "checks": [asdict(finding) for finding in findings]}, json, lines)
    return ok


def _check_definitions(json: bool, *, spark: bool) -> bool:
    from tally.catalog.load import catalogue

    loaded = catalogue()
    faults: dict[str, list[str]] = {name: [] for name in loaded.pipelines}
    faults.update((name, [str(fault)]) for name, fault in loaded.broken.items())
    if spark:
        from tally.speed.check import check_all

        for name, found in check_all(loaded).items():
            faults[name] = [str(fault) for fault in found]
    ok = not any(faults.values())

    def lines() -> None:
        for name, found in sorted(faults.items()):
            say(f"{'wrong' if found else 'ok   '}  {name}")
            for fault in found:
                say(f"       {fault}")

    document = {
        "ok": ok,
        "topics": sorted(loaded.topics),
        "pipelines": [{"pipeline": name, "errors": found} for name, found in sorted(faults.items())],
    }
    show(document, json, lines)
    return ok

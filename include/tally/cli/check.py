"""`tally check`: the definitions, or with --setup the machine."""

from __future__ import annotations

import secrets
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from tally.base.errors import TallyError
from tally.cli.output import Json, note, say, show

if TYPE_CHECKING:
    from tally.catalog.spec import Pipeline
    from tally.checks.prove import Proof
    from tally.parts.path import StreamPath

Setup = Annotated[bool, typer.Option("--setup", help="Check this machine instead: what is missing, and how to get it.")]
NoSpark = Annotated[bool, typer.Option("--no-spark", help="Only what can be checked without a Spark session.")]
Prove = Annotated[
    bool,
    typer.Option("--prove", help="Also run each good definition over random events, in both layers and any order."),
]
Seed = Annotated[
    int | None, typer.Option("--seed", min=0, max=2**31 - 1, help="With --prove: draw the same events once more.")
]


def check(
    setup: Setup = False, no_spark: NoSpark = False, prove: Prove = False, seed: Seed = None, json: Json = False
) -> None:
    """Load and check every definition: file, line, field and cure of each fault; exit code 1 when there is one."""
    if prove and (setup or no_spark):
        raise TallyError("a proof needs Spark and definitions", field="--prove", cure="leave out the other option")
    if seed is not None and not prove:
        raise TallyError("a seed is for a proof", field="--seed", cure="add --prove")
    chosen = (secrets.randbelow(2**31) if seed is None else seed) if prove else None
    ok = _check_machine(json) if setup else _check_definitions(json, spark=not no_spark, seed=chosen)
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


def _check_definitions(json: bool, *, spark: bool, seed: int | None) -> bool:
    from tally.catalog.load import catalogue

    loaded = catalogue()
    faults: dict[str, list[str]] = {name: [] for name in loaded.pipelines}
    faults.update((name, [str(fault)]) for name, fault in loaded.broken.items())
    if spark:
        from tally.checks.definition import check_all

        for name, found in check_all(loaded).items():
            faults[name] = [str(fault) for fault in found]
    good = [loaded.pipelines[name] for name in sorted(faults) if not faults[name]]
    paths = _paths(good) if spark else {}
    proofs = {} if seed is None else _prove(good, seed, faults)
    ok = not any(faults.values())

    def lines() -> None:
        for name, found in sorted(faults.items()):
            say(f"{'wrong' if found else 'ok   '}  {name}{_told(proofs.get(name))}")
            if name in paths:
                say(f"       {paths[name]}")
            for fault in found:
                say(f"       {fault}")

    document = {
        "ok": ok,
        "topics": sorted(loaded.topics),
        "pipelines": [
            {"pipeline": name, "errors": found} | (paths[name].as_json() if name in paths else {})
            for name, found in sorted(faults.items())
        ],
    }
    if seed is not None:
        document |= {"seed": seed, "proofs": [asdict(proof) for proof in proofs.values()]}
    show(document, json, lines)
    return ok


def _paths(good: list[Pipeline]) -> dict[str, StreamPath]:
    """Which path each good definition could take through a stream."""
    from tally.parts.path import path_of

    return {pipeline.name: path_of(pipeline) for pipeline in good}


def _prove(good: list[Pipeline], seed: int, faults: dict[str, list[str]]) -> dict[str, Proof]:
    """The proofs of good definitions; one that fails becomes a fault."""
    from tally.checks.prove import prove_all

    note(f"{len(good)} definitions over random events; the same again: tally check --prove --seed {seed}")
    proofs, failed = prove_all(good, seed)
    faults.update((name, [str(fault)]) for name, fault in failed.items())
    return proofs


def _told(proof: Proof | None) -> str:
    if proof is None:
        return ""
    if not proof.rows:
        return f": not proved, none of {proof.events} random events comes out of it"
    return (
        f": proved, {proof.rows} rows of {proof.events} random events in {proof.micro_batches} micro-batches"
        f" ({proof.seconds:.0f} s)"
    )

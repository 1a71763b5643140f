"""A stream starts only where checkpoint, ledger, table and topics agree; each way to disagree has a name and a cure."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import harmed
import pytest
import world as worlds
from harmed import HOWS, NAME, REFUSED
from pyspark.sql import SparkSession
from world import World

from tally.base.errors import AnswerIsNo
from tally.control import incidents
from tally.speed import checkpoint
from tally.speed.start import agreement, stored_state, torn_files


@pytest.fixture(scope="module", params=worlds.DEFAULT_FIRST)
def stopped(
    request: pytest.FixtureRequest, spark: SparkSession, broker: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[World]:
    with pytest.MonkeyPatch.context() as patch:
        path = request.param
        yield harmed.make(tmp_path_factory.mktemp("agreement"), f"agree.{path}.", broker, patch, path)


@pytest.fixture
def copy(stopped: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    return harmed.copied(stopped, tmp_path, monkeypatch)


def found(world: World) -> dict[str, agreement.Finding]:
    return {finding.name: finding for finding in agreement.findings(stored_state.read(world.pipeline(NAME)))}


def files(folder: Path) -> dict[str, bytes]:
    return {str(file.relative_to(folder)): file.read_bytes() for file in folder.rglob("*") if file.is_file()}


def test_an_unharmed_stream_agrees_and_nothing_is_healed(copy: World) -> None:
    checks = found(copy)
    assert [finding for finding in checks.values() if not finding.good] == []
    assert set(checks) == {"checkpoint", "offsets log", "commit log", "ledger", "table", "topic", "retention"}
    before = files(harmed.root(copy))
    assert torn_files.heal(copy.pipeline(NAME)) == []
    assert agreement.ensure(copy.pipeline(NAME)).fresh is False
    assert files(harmed.root(copy)) == before


@pytest.mark.parametrize("case", REFUSED)
def test_what_disagrees_is_refused_by_name_with_its_cure(copy: World, case: str) -> None:
    act, name, says = REFUSED[case]
    act(copy)
    pipeline = copy.pipeline(NAME)
    assert torn_files.heal(pipeline) == [], "nothing of this is safe to put aside"
    with pytest.raises(AnswerIsNo, match=says) as refused:
        agreement.ensure(pipeline)
    assert (refused.value.pipeline, refused.value.field, refused.value.exit_code) == (NAME, name, 1)
    assert f"tally rebuild {NAME}" in (refused.value.cure or "")
    assert not found(copy)[name].good


@pytest.mark.parametrize("how", HOWS)
def test_a_plan_that_was_never_run_is_put_aside(copy: World, how: str) -> None:
    root, number = harmed.root(copy), harmed.newest(copy).batch + 1
    harmed.harm(root / "offsets" / str(number), how, like=harmed.plan(copy))
    state = root / "state" / "0" / "1"
    left = [state / f"{number + 1}.snapshot"] if state.exists() else []  # its run may have come so far
    assert bool(left) == (copy.path_of(NAME) == "own")
    for file in left:
        file.write_bytes(b"of a micro-batch that was never applied")
    before = files(root)
    pipeline = copy.pipeline(NAME)
    assert not found(copy)["offsets log"].good
    (line,) = torn_files.heal(pipeline)
    assert f"offsets/{number} is" in line
    agreement.ensure(pipeline)
    aside_now = {f"aside/offsets-{number}": before[f"offsets/{number}"]}
    aside_now |= {f"aside/{file.relative_to(root)}": before[str(file.relative_to(root))] for file in left}
    kept = {name: text for name, text in before.items() if text not in aside_now.values()}
    assert files(root) == kept | aside_now, "moved, and nothing else is touched"
    (told,) = incidents.history(NAME)
    assert told.closed_at and told.done == line


@pytest.mark.parametrize("how", HOWS)
def test_a_harmed_entry_of_the_commit_log_is_put_aside(copy: World, how: str) -> None:
    number = harmed.newest(copy).batch
    harmed.harm(harmed.done(copy), how)
    assert not found(copy)["commit log"].good
    (line,) = torn_files.heal(copy.pipeline(NAME))
    assert f"commits/{number} is" in line and "run again" in line
    agreement.ensure(copy.pipeline(NAME))
    assert (harmed.root(copy) / "aside" / f"commits-{number}").exists()


@pytest.mark.parametrize("how", HOWS)
def test_a_commit_of_the_table_that_nobody_counts_on_is_put_aside(copy: World, how: str) -> None:
    file = harmed.entry(copy, ahead=1)
    harmed.harm(file, how, like=harmed.entry(copy))
    assert not found(copy)["table"].good
    (line,) = torn_files.heal(copy.pipeline(NAME))
    assert "nothing was counted on it" in line and not file.exists()
    agreement.ensure(copy.pipeline(NAME))


def test_several_half_written_files_are_put_aside_one_after_the_other(copy: World) -> None:
    root, number = harmed.root(copy), harmed.newest(copy).batch
    for file in (root / "offsets" / str(number + 1), harmed.done(copy), harmed.entry(copy, ahead=1)):
        file.write_bytes(b"")
    assert len(torn_files.heal(copy.pipeline(NAME))) == 3
    agreement.ensure(copy.pipeline(NAME))


def test_a_plan_whose_rows_only_the_table_knows_is_not_put_aside(copy: World) -> None:
    """Killed between the table's commit and the ledger's entry: planned anew, it would leave records out."""
    import sqlalchemy as sa

    from tally.control.store import store
    from tally.control.tables import ledger

    number = harmed.newest(copy).batch
    file, plan = harmed.done(copy), harmed.plan(copy)
    with store().begin() as connection:
        connection.execute(sa.delete(ledger).where(ledger.c.batch == number))
    file.unlink()
    plan.write_bytes(b"")
    assert torn_files.heal(copy.pipeline(NAME)) == []
    with pytest.raises(AnswerIsNo, match=rf"offsets/{number} is empty"):
        agreement.ensure(copy.pipeline(NAME))


def test_a_new_generation_whose_folder_is_gone_does_not_fall_back_to_the_old_one(copy: World) -> None:
    pipeline = copy.pipeline(NAME)
    folder = Path(checkpoint.root(NAME, pipeline.version, 2))
    folder.mkdir()
    assert agreement.ensure(pipeline).fresh, "it may begin"
    words = '{"commitInfo":{"userMetadata":"{\\"tally\\":{\\"kind\\":\\"rebuild\\",\\"generation\\":2}}"}}\n'
    harmed.entry(copy, ahead=1).write_text(words)
    assert agreement.ensure(pipeline).fresh, "killed before its first micro-batch, it begins again"
    folder.rmdir()
    with pytest.raises(AnswerIsNo, match="the table was emptied for generation 2: its folder is gone"):
        agreement.ensure(pipeline)


def test_a_log_without_one_of_a_commit_s_files_is_seen(copy: World) -> None:
    file = next(f for f in sorted(harmed.entry(copy).parent.glob("*.json")) if '"add"' in f.read_text())
    lines = file.read_text().splitlines()
    file.write_text("\n".join(line for line in lines if not line.startswith('{"add"')) + "\n")
    with pytest.raises(AnswerIsNo, match=re.escape(f"entry {int(file.stem)} of its log is cut short")):
        agreement.ensure(copy.pipeline(NAME))

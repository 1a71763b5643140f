"""A catalogue is what its files say now, whatever bytecode an earlier text of theirs has left behind."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import definitions
import pytest

from tally.base.settings import REPO
from tally.catalog.load import load

# Each pair is of one length, as a stale .pyc needs it.
CHANGES = [
    pytest.param("pipelines/demand.py", "RATE = 2", "RATE = 3", "demand.RATE", "3", id="a constant of a pipeline"),
    pytest.param("topics.py", '"1 minute"', '"2 minute"', "topic.lateness", "0:02:00", id="a topic"),
    pytest.param("helpers/rates.py", "TAX = 7", "TAX = 9", "demand.TAX", "9", id="a module of a package"),
    pytest.param("words.py", "UNIT = 'a'", "UNIT = 'b'", "demand.UNIT", "b", id="a module beside topics.py"),
]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = definitions.write(tmp_path)
    (folder / "helpers").mkdir()
    (folder / "helpers" / "rates.py").write_text("TAX = 7\n")
    (folder / "words.py").write_text("UNIT = 'a'\n")
    definitions.edit(folder, "from topics import rides", "from topics import rides\nfrom helpers.rates import TAX\n"
                                                         "from words import UNIT")  # fmt: skip
    definitions.edit(folder, "* RATE", "* RATE + TAX + len(UNIT)")
    return folder


def told(folder: Path) -> dict[str, str]:
    """What a pipeline's function sees in this process."""
    pipeline = load(folder).pipeline("demand")
    sees = pipeline.function.__globals__
    return {
        **{f"demand.{name}": str(sees[name]) for name in ("RATE", "TAX", "UNIT")},
        "topic.lateness": str(pipeline.reads[0].lateness),
        "version": pipeline.version,
    }


@pytest.mark.parametrize(("file", "old", "new", "what", "now"), CHANGES)
def test_bytecode_of_an_earlier_text_is_not_run(
    folder: Path, file: str, old: str, new: str, what: str, now: str
) -> None:
    python_leaves_bytecode(folder)
    before = told(folder)
    stands = (folder / file).stat()
    definitions.edit(folder, old, new, file=file)
    os.utime(folder / file, ns=(stands.st_atime_ns, stands.st_mtime_ns))  # as a copy that keeps time stamps leaves it
    assert (folder / file).stat().st_size == stands.st_size, "or the bytecode would be seen to be old"
    after = told(folder)
    assert after[what] == now != before[what]
    assert after["version"] != before["version"]


def python_leaves_bytecode(folder: Path) -> None:
    """Import all files of a catalogue as Python does by itself, with its cache beside them."""
    script = "import topics, words, helpers.rates; import runpy, py_compile; py_compile.compile('pipelines/demand.py')"
    env = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    path = os.pathsep.join([str(folder), str(REPO / "include")])
    command = [sys.executable, "-c", script]
    subprocess.run(command, cwd=folder, env={**env, "PYTHONPATH": path}, check=True, timeout=400)
    assert len(list(folder.rglob("*.pyc"))) == 4


def test_loading_leaves_no_bytecode_and_nothing_on_the_path(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    paths, hooks = list(sys.path), list(sys.path_hooks)
    load(folder)
    assert not list(folder.rglob("*.pyc"))
    assert (sys.path, sys.path_hooks) == (paths, hooks)
    assert not [path for path in sys.path_importer_cache if path.startswith(str(folder))]


def test_a_module_that_comes_to_a_folder_is_found(folder: Path) -> None:
    load(folder)
    (folder / "late.py").write_text("EXTRA = 5\n")
    definitions.edit(folder, "from words import UNIT", "from words import UNIT\nfrom late import EXTRA")
    definitions.edit(folder, "len(UNIT)", "EXTRA")
    assert load(folder).pipeline("demand").function.__globals__["EXTRA"] == 5

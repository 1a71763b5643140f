"""A constant is part of a version: its type, wherever it is used, and each statement that changes it in place."""

from __future__ import annotations

import os
from pathlib import Path

import definitions
import pytest

from tally.catalog.load import load


def version(folder: Path) -> str:
    return load(folder).pipeline("demand").version


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return definitions.write(tmp_path / "one")


CONSTANT = "RATE = 2"


@pytest.mark.parametrize(
    ("old", "new"),
    [
        pytest.param("1.5", "'1.5'", id="a number and its text"),
        pytest.param("1", "True", id="a number and a truth"),
        pytest.param("1", "1.0", id="a whole number and a float"),
        pytest.param("b'x'", "'x'", id="bytes and text"),
        pytest.param("2j", "'2j'", id="a complex number and its text"),
        pytest.param("...", "'Ellipsis'", id="an ellipsis and its text"),
        pytest.param("None", "'None'", id="nothing and its text"),
        pytest.param("None", "False", id="nothing and a falsehood"),
    ],
)
def test_a_constant_is_not_another_of_another_type(folder: Path, old: str, new: str) -> None:
    definitions.edit(folder, CONSTANT, f"RATE = {old}")
    before = version(folder)
    definitions.edit(folder, f"RATE = {old}", f"RATE = {new}")
    assert version(folder) != before


@pytest.mark.parametrize(
    "source",
    [
        pytest.param("def taxed(column, *, rate=RATE):\n    return F.col(column) * rate\n", id="keyword-only default"),
        pytest.param("def taxed(column, rate=RATE):\n    return F.col(column) * rate\n", id="positional default"),
        pytest.param("taxed = lambda column, *, rate=RATE: F.col(column) * rate\n", id="a lambda's default"),
        pytest.param("taxed = lambda column: F.col(column) * RATE\n", id="a lambda"),
        pytest.param("class Tax:\n    rate = RATE\n\ndef taxed(c):\n    return F.col(c) * Tax.rate\n", id="a class's"),
        pytest.param(
            "class Tax:\n    def of(self, c):\n        return F.col(c) * RATE\n\n"
            "def taxed(c):\n    return Tax().of(c)\n",
            id="a method",
        ),
        pytest.param(
            "def taxed(c):\n    def inner(c):\n        return F.col(c) * RATE\n    return inner(c)\n",
            id="a nested function",
        ),
        pytest.param(
            "def times(n):\n    return lambda f: lambda c: f(c) * n\n\n"
            "@times(RATE)\ndef taxed(c):\n    return F.col(c)\n",
            id="a decorator",
        ),
        pytest.param("if (n := RATE):\n    pass\n\ndef taxed(c):\n    return F.col(c) * n\n", id="a walrus"),
        pytest.param(
            "def other(a=(n := RATE)):\n    return a\n\ndef taxed(c):\n    return F.col(c) * n\n",
            id="a default's walrus",
        ),
        pytest.param("for n in [RATE]:\n    pass\n\ndef taxed(c):\n    return F.col(c) * n\n", id="a loop's name"),
        pytest.param(
            "from dataclasses import dataclass, field\n\ndef made():\n    return RATE\n\n@dataclass\nclass Tax:\n"
            "    rate: int = field(default_factory=made)\n\ndef taxed(c):\n    return F.col(c) * Tax().rate\n",
            id="a default_factory",
        ),
        pytest.param(
            "def taxed(c):\n    rates = [RATE for c in range(1)]\n    return F.col(c) * rates[0]\n",
            id="a comprehension",
        ),
        pytest.param("def taxed(c):\n    match c:\n        case _:\n            return F.col(c) * RATE\n", id="a case"),
        pytest.param("RATES = {**{'a': RATE}}\n\ndef taxed(c):\n    return F.col(c) * RATES['a']\n", id="a dict"),
    ],
)
def test_it_follows_a_constant_wherever_it_is_used(folder: Path, source: str) -> None:
    text = (folder / "pipelines" / "demand.py").read_text()
    start, end = text.index("def taxed"), text.index("@pipeline")
    (folder / "pipelines" / "demand.py").write_text(text[:start] + source + "\n\n" + text[end:])
    before = version(folder)
    definitions.edit(folder, CONSTANT, "RATE = 3")
    assert version(folder) != before


@pytest.mark.parametrize(
    ("made", "change"),
    [
        pytest.param("{'cap': 2}", "LIMITS['cap'] = N", id="an item"),
        pytest.param("{'cap': 2}", "LIMITS.update(cap=N)", id="update"),
        pytest.param("{'cap': 2}", "if LIMITS:\n    LIMITS.update(cap=N)", id="below an if"),
        pytest.param("{'cap': 2}", "for key in ('cap',):\n    LIMITS[key] = N", id="below a loop"),
        pytest.param("{'cap': 2}", "for one in (LIMITS, dict()):\n    one['cap'] = N", id="of a loop"),
        pytest.param("{'cap': 2}", "try:\n    LIMITS['cap'] = N\nexcept KeyError:\n    raise", id="below a try"),
        pytest.param(
            "{'cap': 2}",
            "from contextlib import suppress\nwith suppress(KeyError):\n    LIMITS['cap'] = N",
            id="below a with",
        ),
        pytest.param("{'cap': 2}", "SAME = LIMITS\nSAME['cap'] = N", id="under another name"),
        pytest.param("{'cap': 2}", "BOTH = [LIMITS]\nBOTH[0]['cap'] = N", id="inside another"),
        pytest.param("{'cap': 2}", "del LIMITS['cap']\nLIMITS.setdefault('cap', N)", id="del and setdefault"),
        pytest.param("{'cap': 2}", "LIMITS |= {'cap': N}", id="an augmented assignment"),
        pytest.param("{'cap': 2}", "dict.update(LIMITS, cap=N)", id="a function of the class"),
        pytest.param("{'cap': 2}", "import operator\noperator.setitem(LIMITS, 'cap', N)", id="a function of a library"),
        pytest.param("{'cap': 2}", "put = lambda n: LIMITS.update(cap=n)\n_ = put(N)", id="a lambda"),
        pytest.param("{'cap': 2}", "put = LIMITS.update\n_ = put(cap=N)", id="a method that has a name"),
        pytest.param("{'cap': 2}", "_ = list(map(LIMITS.__setitem__, ['cap'], [N]))", id="a method handed over"),
        pytest.param(
            "{'cap': 2}",
            "class Held:\n    def put(self, n):\n        self.held = {'cap': n}\n        return self\n\n\n"
            "LIMITS = Held()\n_ = LIMITS.put(N)\nLIMITS = LIMITS.held",
            id="a method of a class",
        ),
        pytest.param("{'cap': 2}", "_ = [LIMITS.update(cap=n) for n in (N,)]", id="in a comprehension"),
    ],
)
def test_a_statement_that_changes_what_the_function_uses_counts(folder: Path, made: str, change: str) -> None:
    found = []
    for value in ("3", "4", "(4)"):
        definitions.write(folder)
        definitions.edit(
            folder, CONSTANT, f"LIMITS = {made}\n{change.replace('N', value)}\nUNUSED = {{}}\nUNUSED['x'] = {value}"
        )
        definitions.edit(folder, "* RATE", "* LIMITS['cap']")
        os.utime(folder / "topics.py")
        found.append(version(folder))
    assert found[0] != found[1] == found[2]


@pytest.mark.parametrize(
    "change",
    [
        pytest.param("del LIMITS['low']", id="del of an item"),
        pytest.param("LIMITS.pop('low')", id="pop"),
        pytest.param("BOUND = 3\nLIMITS['cap'] = BOUND", id="an item of another constant"),
    ],
)
def test_a_change_that_is_there_or_not_counts(folder: Path, change: str) -> None:
    definitions.edit(folder, CONSTANT, "LIMITS = {'cap': 2, 'low': 1}")
    definitions.edit(folder, "* RATE", "* max(LIMITS.values())")
    before = version(folder)
    definitions.edit(folder, "'low': 1}", f"'low': 1}}\n{change}")
    assert version(folder) != before


def test_an_attribute_that_is_set_later_counts(folder: Path) -> None:
    definitions.edit(folder, CONSTANT, "class Tax:\n    rate = 2\n\n\nTax.rate = 3")
    definitions.edit(folder, "* RATE", "* Tax.rate")
    before = version(folder)
    definitions.edit(folder, "Tax.rate = 3", "Tax.rate = 4")
    assert version(folder) != before


def test_when_a_value_was_taken_counts(folder: Path) -> None:
    definitions.edit(folder, CONSTANT, "BASE = 2\nRATE = BASE\nBASE = 3")
    before = version(folder)
    definitions.edit(folder, "RATE = BASE\nBASE = 3", "BASE = 3\nRATE = BASE")
    assert version(folder) != before

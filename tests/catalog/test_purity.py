"""What cannot be seen through, or is not the same at any time, is refused at the author's line, with the cure."""

from __future__ import annotations

from pathlib import Path

import definitions
import pytest

from tally.base.errors import DefinitionError
from tally.catalog.load import load

BODY = "F.col(column) * RATE"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return definitions.write(tmp_path / "one")


def refused(folder: Path) -> DefinitionError:
    with pytest.raises(DefinitionError) as raised:
        load(folder).pipeline("demand")
    assert raised.value.pipeline == "demand" and raised.value.cure
    return raised.value


def top(folder: Path, text: str) -> None:
    """Put text at the top of the file, after the words of Tally."""
    definitions.edit(folder, "RATE = 2", f"{text}\n\nRATE = 2")


def test_an_import_inside_a_function_is_refused_with_its_cure(folder: Path) -> None:
    (folder / "shared.py").write_text("FACTOR = 2\n")
    definitions.edit(folder, f"    return {BODY}", f"    from shared import FACTOR\n\n    return {BODY} * FACTOR")
    error = refused(folder)
    assert "import inside" in error.message and error.cure == "import it at the top of the file"
    assert error.where == definitions.line_of(folder, "from shared")


@pytest.mark.parametrize(
    "code",
    [
        "eval('RATE')",
        "exec('x = 1')",
        "compile('1', 'x', 'eval')",
        "globals()['RATE']",
        "locals()['column']",
        "vars()",
        "__import__('shared').FACTOR",
        "getattr(F, column)('x')",
        "getattr(*[F, 'rand'])",
        "(lambda: eval)()('RATE')",
        "taxed.__globals__['RATE']",
        "taxed.__doc__",
    ],
)
def test_what_hides_its_meaning_is_refused(folder: Path, code: str) -> None:
    definitions.edit(folder, BODY, f"{BODY} * {code}")
    error = refused(folder)
    assert "cannot be seen through" in error.message
    assert error.where == definitions.line_of(folder, BODY)


@pytest.mark.parametrize(
    ("imports", "code"),
    [
        ("import random", "random.random()"),
        ("import random", "random.choice([1, 2])"),
        ("from random import choice as pick", "pick([1, 2])"),
        ("import secrets", "secrets.randbelow(3)"),
        ("import uuid", "uuid.uuid5(uuid.NAMESPACE_DNS, 'x').int"),
        ("import time", "time.process_time()"),
        ("import time as t", "t.localtime().tm_hour"),
        ("import os", "os.getpid()"),
        ("import os", "int(os.sep == '/')"),
        ("from os import environ as surroundings", "int(surroundings['X'])"),
        ("import socket", "len(socket.gethostname())"),
        ("import subprocess", "len(subprocess.check_output('date'))"),
        ("import requests", "requests.get('http://localhost').json()"),
        ("import urllib.request", "urllib.request.urlopen('http://localhost').status"),
        ("import numpy as np", "np.random.default_rng().random()"),
        ("from numpy import random as chance", "chance.rand()"),
        ("from numpy.random import default_rng", "default_rng().integers(3)"),
        ("from datetime import datetime", "datetime.now().hour"),
        ("from datetime import datetime as moment", "moment.utcnow().hour"),
        ("import datetime", "datetime.date.today().day"),
        ("from datetime import datetime", "(clock := datetime.now) and clock().hour"),
        ("from pathlib import Path", "float(Path('x').read_text())"),
        ("import sys", "len(sys.argv)"),
        ("import pandas as pd", "pd.read_csv('x').iloc[0, 0]"),
        ("from pyspark.sql.functions import rand as fair", "fair()"),
        ("from pyspark.sql import SparkSession", "SparkSession.getActiveSession().version"),
        ("from tally.base.settings import settings", "settings().tolerance"),
        ("from os import *", "getpid()"),
        ("", "hash('x')"),
        ("", "id(column)"),
        ("", "F.expr(\"timestamp'now' > at\")"),
        ("", "sum({1, 2})[0] if [n for n in {'a', 'b'}] else 0"),
        ("", "F.concat(*{'a', 'b'})"),
    ],
)
def test_the_clock_chance_and_the_surroundings_are_refused_in_a_function_and_at_the_top(
    folder: Path, tmp_path: Path, imports: str, code: str
) -> None:
    top(folder, imports)
    definitions.edit(folder, BODY, f"{BODY} * {code}")
    error = refused(folder)
    assert "clock, chance or the environment" in error.message
    assert error.where and error.where.startswith(str(folder / "pipelines" / "demand.py"))


@pytest.mark.parametrize(
    ("imports", "code"),
    [
        ("import time", "time.time()"),
        ("import random", "random.random()"),
        ("import os", "float(os.environ.get('X', 1))"),
        ("from datetime import datetime", "datetime.now().hour"),
        ("from pathlib import Path", "len(Path(__file__).name)"),
        ("import json", "len(json.dumps(open(__file__).read()))"),
    ],
)
def test_a_constant_made_of_them_is_refused_where_it_is_made(folder: Path, imports: str, code: str) -> None:
    definitions.edit(folder, "RATE = 2", f"{imports}\n\nRATE = {code}")
    error = refused(folder)
    assert "the function" in error.message and error.where == definitions.line_of(folder, "RATE = ")


@pytest.mark.parametrize(
    "code", ["import os\n\nHERE = os.getcwd()", "import time\n\n\ndef other():\n    return time.time()"]
)
def test_what_the_function_does_not_reach_is_nobodys_business(folder: Path, code: str) -> None:
    top(folder, code)
    assert load(folder).pipeline("demand")


def test_a_library_that_is_none_of_sparks_is_refused(folder: Path) -> None:
    top(folder, "import tenacity")
    definitions.edit(folder, BODY, f"{BODY} * len(tenacity.__name__)")
    error = refused(folder)
    assert "cannot be seen through: tenacity" in error.message and "beside topics.py" in (error.cure or "")


@pytest.mark.parametrize(
    ("imports", "code"),
    [
        ("import math", "math.pi"),
        ("from decimal import Decimal", "F.lit(Decimal('1.5'))"),
        ("from functools import reduce", "reduce(lambda a, b: a + b, [F.lit(1), F.lit(2)])"),
        ("from datetime import datetime", "F.lit(datetime(2026, 1, 1).day)"),
        ("import numpy as np", "float(np.float64(2))"),
        ("import re", "len(re.sub('a', 'b', 'abc'))"),
        ("from pyspark.sql import types as T, Window", "F.lit(1).cast(T.DoubleType())"),
        ("", "getattr(F, 'lit')(1)"),
        ("", "F.lit(sum(sorted({1, 2})))"),
        ("", "F.lit(1 if 1 in {1, 2} else 0)"),
        ("def time(c):\n    return c\n\n\ntotal = 3", "total"),
    ],
)
def test_what_follows_from_what_it_is_given_is_fine(folder: Path, imports: str, code: str) -> None:
    top(folder, imports)
    definitions.edit(folder, BODY, f"{BODY} * {code}")
    assert load(folder).pipeline("demand")


@pytest.mark.parametrize(
    "body",
    [
        "    F.sum = F.max\n",
        "    SEEN.append(column)\n",
        "    SEEN[0] = column\n",
        "    global RATE\n    RATE = 3\n",
    ],
)
def test_a_function_that_remembers_its_calls_is_refused(folder: Path, body: str) -> None:
    top(folder, "SEEN = [0]")
    definitions.edit(folder, f"    return {BODY}", f"{body}    return {BODY}")
    assert "stands outside" in refused(folder).message


@pytest.mark.parametrize(
    ("imports", "change"),
    [
        ("import shared", "shared.FACTOR = 3"),
        ("from shared import LIMITS", "LIMITS['cap'] = 3"),
        ("from shared import LIMITS", "LIMITS.update(cap=3)"),
        ("from shared import put", "put()"),
        ("from shared import put", "_ = put()"),
        ("import shared", "_ = [shared.put()]"),
        ("", "exec('RATE = 3')"),
        ("", "F.sum = F.max"),
        ("", "setattr(F, 'sum', F.max)"),
    ],
)
def test_a_file_that_changes_another_is_refused_before_it_is_run(folder: Path, imports: str, change: str) -> None:
    (folder / "shared.py").write_text("FACTOR = 2\nLIMITS = {}\n\n\ndef put():\n    LIMITS['cap'] = 1\n")
    top(folder, f"{imports}\n\n{change}\nraise SystemExit")
    error = refused(folder)
    assert "the file c" in error.message and error.where == definitions.line_of(folder, change)


def test_calling_what_another_file_defines_is_no_change(folder: Path) -> None:
    (folder / "shared.py").write_text("def add(a, b):\n    return a + b\n")
    top(folder, "import shared\n\nTOTAL = shared.add(1, 2)\nBACK = F.reverse\n")
    definitions.edit(folder, BODY, f"{BODY} * TOTAL")
    assert load(folder).pipeline("demand")


@pytest.mark.parametrize("asked", ["isStreaming", "isLocal()", "inputFiles()"])
def test_a_function_that_asks_which_layer_it_runs_in_is_refused(tmp_path: Path, asked: str) -> None:
    body = f'rides.groupBy("window", "zone").agg(F.sum("fare" if rides.{asked} else "id").alias("cost"))'
    folder = definitions.write(tmp_path, body=body)
    error = refused(folder)
    assert "which layer" in error.message and error.where == definitions.line_of(folder, body)


def test_a_file_that_imports_one_that_changes_another_is_refused_too(folder: Path) -> None:
    (folder / "shared.py").write_text("FACTOR = 2\n")
    (folder / "patch.py").write_text("import shared\n\nshared.FACTOR = 3\n")
    top(folder, "import patch")
    assert refused(folder).where == definitions.line_of(folder, "shared.FACTOR = 3", file="patch.py")


def test_a_function_that_is_made_elsewhere_is_refused(folder: Path) -> None:
    definitions.edit(folder, '@pipeline(reads=rides, window=tumbling("1 minute"), key="zone")\n', "")
    definitions.edit(folder, "def demand(rides):", "def made():\n  def demand(rides):")
    path = folder / "pipelines" / "demand.py"
    path.write_text(path.read_text().replace('    """Demand."""', '    """Demand."""') + "  return demand\n\n\n")
    path.write_text(
        path.read_text() + 'other = pipeline(reads=rides, window=tumbling("1 minute"), key="zone")(made())\n'
    )
    assert "binds 'demand'" in refused(folder).message

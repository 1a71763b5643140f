"""What runs is what is pinned, and nothing in the repo says where packages come from."""

from __future__ import annotations

import re
import subprocess
from importlib.metadata import version
from pathlib import Path

import pytest

from tally.base.settings import REPO, settings
from tally.embedded.doctor import POMS, astray, jars_of, pins

FILES = ("requirements.txt", "requirements.lock")

# Addresses that a package manager would fetch from, in any configuration file's spelling.
REGISTRY = re.compile(
    r"pypi\.org|pythonhosted\.org|repo1?\.maven\.|maven\.apache\.org/maven2|maven\.google|repository\.apache\.org|"
    r"registry\.npmjs|conda\.anaconda|--(?:extra-)?index-url|--find-links|index-url\s*=|"
    r"<repositor(?:y|ies)>|<pluginRepositor|<mirror>|artifactory|nexus"
)


@pytest.mark.parametrize("name", FILES)
def test_what_is_installed_is_what_is_pinned(name: str) -> None:
    assert astray(REPO / name) == []


@pytest.mark.parametrize("name", FILES)
def test_every_pin_is_exact(name: str) -> None:
    found = list(pins(REPO / name))
    assert len(found) > 20
    assert [str(pin) for pin in found if not re.fullmatch(r"==[^*,]+", str(pin.specifier))] == []


def test_a_package_that_is_not_as_pinned_is_named(tmp_path: Path) -> None:
    file = tmp_path / "requirements.txt"
    file.write_text("typer==0.0.1  # a reason\nno-such-package==1.0\nnever==1.0 ; sys_platform == 'win32'\n")
    assert astray(file) == [
        f"typer is {version('typer')}, pinned 0.0.1",
        "no-such-package is missing, pinned 1.0",
    ]


def test_the_lock_holds_every_direct_pin() -> None:
    locked = {pin.name.lower(): str(pin.specifier) for pin in pins(REPO / "requirements.lock")}
    direct = {pin.name.lower(): str(pin.specifier) for pin in pins(REPO / "requirements.txt")}
    assert {name: locked.get(name) for name in direct} == direct


def test_both_pysparks_are_one_version() -> None:
    assert version("pyspark") == version("pyspark-client")


@pytest.mark.parametrize("name", sorted(POMS))
def test_the_jars_are_those_of_the_pom(name: str) -> None:
    there = {jar.name for jar in (settings().jars / name).glob("*.jar")}
    assert set(jars_of(POMS[name])) <= there


def test_spark_gets_no_jar_that_pyspark_already_has() -> None:
    import pyspark

    def artifact(jar: Path) -> str:
        return re.sub(r"-\d[\w.]*\.jar$", "", jar.name)

    ours = {artifact(jar) for jar in (settings().jars / "spark").glob("*.jar")}
    assert len(ours) == 11
    assert ours & {artifact(jar) for jar in (Path(pyspark.__file__).parent / "jars").glob("*.jar")} == set()


def test_no_file_names_a_registry() -> None:
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=REPO, capture_output=True, text=True, check=True, timeout=30)
    named = []
    for name in filter(None, listed.stdout.split("\0")):
        file = REPO / name
        if file == Path(__file__).resolve() or not file.is_file():
            continue
        text = file.read_text(errors="ignore")
        named += [f"{name}: {found.group()}" for found in REGISTRY.finditer(text)]
    assert named == []


@pytest.mark.parametrize(
    "line", ["--index-url https://x/simple", "see https://pypi.org/project/x", "<repositories><repository>"]
)
def test_a_named_registry_would_be_found(line: str) -> None:
    assert REGISTRY.search(line)

"""No page points at nothing: links, names in code, verbs and settings are checked against what is there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tally.base.settings import REPO, Settings
from tally.cli.app import VERBS

PAGES = sorted([*REPO.glob("*.md"), *(REPO / "docs").rglob("*.md")])
LINK = re.compile(r"\[(?P<text>[^\]]*)\]\((?P<target>[^)\s]+)\)")
FENCED = re.compile(r"^```.*?^```$", re.M | re.S)
IDENTIFIER = re.compile(r"`(?P<name>[A-Za-z_]\w*)`$")
HEADING = re.compile(r"^#+ +(.*)$", re.M)
VERB = re.compile(r"(?:^ {4}|`)tally (?P<verb>[a-z]+)", re.M)
page = pytest.mark.parametrize("page", PAGES, ids=lambda path: str(path.relative_to(REPO)))


def links(text: str) -> list[tuple[str, str]]:
    found = [(link["text"], link["target"]) for link in LINK.finditer(FENCED.sub("", text))]
    return [(words, target) for words, target in found if "://" not in target]


def anchors(text: str) -> set[str]:
    """The anchors of a page's headings, as GitHub makes them."""
    plain = [re.sub(r"[`*]", "", heading).strip().lower() for heading in HEADING.findall(FENCED.sub("", text))]
    return {re.sub(r"[^\w\- ]", "", heading).replace(" ", "-") for heading in plain}


@page
def test_every_relative_link_resolves(page: Path) -> None:
    for words, target in links(page.read_text()):
        path, _, anchor = target.partition("#")
        there = (page.parent / path).resolve() if path else page
        assert there.exists(), f"{page.name}: [{words}]({target})"
        assert REPO in (there, *there.parents), f"{page.name}: {target} leaves the repository"
        if anchor:
            assert anchor in anchors(there.read_text()), f"{page.name}: {target}"


@page
def test_every_name_that_links_to_a_module_is_in_it(page: Path) -> None:
    for words, target in links(page.read_text()):
        named = IDENTIFIER.match(words)
        if named and target.endswith(".py"):
            source, name = (page.parent / target).read_text(), named["name"]
            defined = rf"^\s*(?:def|class) {name}\b|^{name}\b.*=|^def {name}\b"
            assert re.search(defined, source, re.M), f"{page.name}: {target} defines no {name}"


@page
def test_every_command_is_a_verb(page: Path) -> None:
    used = {found["verb"] for found in VERB.finditer(page.read_text())}
    assert used <= set(VERBS), f"{page.name}: {used - set(VERBS)}"


def settings_table() -> str:
    """The settings as a Markdown table, from their own descriptions."""
    lines = ["| setting | default | what it is |", "|---|---|---|"]
    for name, field in Settings.model_fields.items():
        value = field.default
        if isinstance(value, Path):
            value = value.relative_to(REPO)
        shown = "" if value in (None, "") else f"`{value}`"
        told = re.sub(r"[\w/]*<\w+>[\w/]*", r"`\g<0>`", field.description or "")
        lines.append(f"| `TALLY_{name.upper()}` | {shown} | {told} |")
    return "\n".join(lines)


def test_the_reference_lists_every_setting() -> None:
    assert settings_table() in (REPO / "docs" / "reference.md").read_text(), (
        f"put this into docs/reference.md:\n{settings_table()}"
    )


def test_the_reference_lists_every_verb() -> None:
    text = (REPO / "docs" / "reference.md").read_text()
    assert [verb for verb in VERBS if f"| `tally {verb}" not in text] == []

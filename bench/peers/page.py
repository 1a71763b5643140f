"""docs/performance.md and its plots, made of docs/performance.json alone: `python -m bench.peers.page`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from bench.peers import plot, results
from bench.peers.plot import shown
from bench.peers.results import Results, Run
from tally.base.settings import REPO

DOCS = REPO / "docs"
AGAINST = "flink"
INTRODUCTION = Path(__file__).with_name("introduction.md")


@dataclass(frozen=True, kw_only=True)
class Column:
    """One number of a workload's table, and whether it is a plot too."""

    number: str
    head: str
    plotted: bool = False


COLUMNS = {
    "drain": (
        Column(number="seconds", head="seconds, up to the last commit", plotted=True),
        Column(number="events_per_second", head="events a second"),
        Column(number="cpu_seconds_per_million", head="CPU seconds a million", plotted=True),
        Column(number="peak_mb", head="peak MB"),
        Column(number="command_seconds", head="seconds of the whole command"),
    ),
    "many": (
        Column(number="p50", head="age p50, s"),
        Column(number="p99", head="age p99, s", plotted=True),
        Column(number="cores", head="cores", plotted=True),
        Column(number="peak_mb", head="MB"),
        Column(number="all_live_seconds", head="all live after, s", plotted=True),
    ),
    "freshness": (
        Column(number="p50", head="age p50, s", plotted=True),
        Column(number="p99", head="age p99, s", plotted=True),
        Column(number="cores", head="cores"),
        Column(number="peak_mb", head="MB"),
    ),
    "kill": (Column(number="seconds", head="seconds from kill -9 to the next commit", plotted=True),),
}
TITLES = {
    "drain": (
        "Drain",
        "All that a topic holds, into windows of a minute, by an engine that has just been started. W1, W2 and W3 "
        "group by 5, 265 and 10,000 keys.",
    ),
    "many": ("Many pipelines", "So many different functions over one topic, in one driver and in one cluster."),
    "freshness": ("Freshness", "One pipeline at a steady rate."),
    "kill": (
        "After a kill",
        "One pipeline at a steady rate; nothing lost and nothing doubled, or the run does not count.",
    ),
}


def line(run: Run) -> str:
    """A run as it is told while others go on."""
    told = ", ".join(f"{name} {shown(value)}" for name, value in run.numbers.items())
    wrong = f" WRONG: {run.wrong}" if run.wrong else ""
    return f"{run.workload} {run.case} {run.engine}: {told}; others {run.others_cores:.2f} cores{wrong}"


def cell(found: Results, workload: str, case: str, engine: str, column: Column) -> str:
    spread = found.spread(workload, case, engine, column.number)
    if spread is None:
        return ""
    text = shown(spread.median)
    if spread.runs > 1:
        text += f" ({shown(spread.least)}–{shown(spread.most)})"
    against = found.spread(workload, case, AGAINST, column.number)
    if engine != AGAINST and against and against.median:
        text += f" · {spread.median / against.median:.2f}×"
    return text


def table(found: Results, workload: str) -> str:
    """A row for each case and engine; × is the ratio to Flink's median."""
    columns = COLUMNS[workload]
    lines = [
        "| case | engine | " + " | ".join(column.head for column in columns) + " | right | others |",
        "|---|---|" + "---|" * (len(columns) + 2),
    ]
    for case in found.cases(workload):
        for engine in found.engines(workload):
            runs = found.of(workload, case, engine)
            if not runs:
                continue
            right = sum(not run.wrong for run in runs)
            others = max(run.others_cores for run in runs)
            cells = [cell(found, workload, case, engine, column) for column in columns]
            lines.append("| " + " | ".join([case, engine, *cells, f"{right} of {len(runs)}", f"{others:.1f}"]) + " |")
    return "\n".join(lines) + "\n"


def tables(found: Results) -> str:
    return "\n".join(table(found, workload) for workload in COLUMNS if found.cases(workload))


def plots(found: Results) -> dict[str, str]:
    """Each plot's document by its file's name."""
    made = {}
    for workload, columns in COLUMNS.items():
        cases, engines = found.cases(workload), found.engines(workload)
        for column in columns:
            if cases and column.plotted:
                panels = [
                    (case, [(engine, found.spread(workload, case, engine, column.number)) for engine in engines])
                    for case in cases
                ]
                made[f"performance-{workload}-{column.number}.svg"] = plot.bars(
                    TITLES[workload][0], column.head, panels
                )
    return made


def page(found: Results) -> str:
    """The whole page."""
    parts = [INTRODUCTION.read_text(), under(found)]
    for workload in COLUMNS:
        if found.cases(workload):
            title, told = TITLES[workload]
            parts += [f"## {title}\n", told + "\n", table(found, workload)]
            names = [name for name in plots(found) if name.startswith(f"performance-{workload}-")]
            parts += [f"![{title}](images/{name})\n" for name in names]
            parts += wrong_words(found, workload)
    return "\n".join(parts)


def under(found: Results) -> str:
    """The machine, the versions, the commits and the days."""
    commits = ", ".join(f"`{commit}`" for commit in dict.fromkeys(run.commit for run in found.runs))
    days = sorted({run.at[:10] for run in found.runs})
    versions = ", ".join(f"{name} {version}" for name, version in found.versions.items())
    when = " to ".join(dict.fromkeys([days[0], days[-1]]))
    return f"On {found.machine}; {versions}. Runs of {when}, commits {commits}.\n"


def wrong_words(found: Results, workload: str) -> list[str]:
    """What was wrong with runs that do not count."""
    wrong = [run for run in found.runs if run.workload == workload and run.wrong]
    told = dict.fromkeys(f"- {run.case}, {run.engine}: {run.wrong}" for run in wrong)
    return ["Runs that do not count:\n", "\n".join(told) + "\n"] if told else []


def write(found: Results, docs: Path) -> None:
    (docs / "images").mkdir(exist_ok=True)
    for old in (docs / "images").glob("performance-*.svg"):
        old.unlink()
    for name, document in plots(found).items():
        (docs / "images" / name).write_text(document)
    (docs / "performance.md").write_text(page(found))


if __name__ == "__main__":
    write(results.read(DOCS / "performance.json"), DOCS)

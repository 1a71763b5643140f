"""`python -m bench.peers [WORKLOAD…]`: Tally and its peers on the same work, in turns, into docs/performance.json.

Each run's answer is checked before its time counts. `--quick` runs each workload once, small, and prints the tables;
`--profile FOLDER` runs each once and records it: JVMs by JFR, Tally's Python by samples of its stacks. The page and its
plots are made by `python -m bench.peers.page`.
"""

from __future__ import annotations

import argparse
import signal
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from bench.home import fresh_home
from bench.peers import drain, following, killing, page, results
from tally.base.settings import REPO

WORKLOADS = ("drain", "many", "freshness", "kill")
ENGINES = ("tally", "tally-shared", "flink", "native", "spark-tuned")
FOLLOWING = ("tally", "tally-shared", "flink")


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(prog="python -m bench.peers", description=__doc__)
    made.add_argument("workloads", nargs="*", choices=[*WORKLOADS, []], help="none: all")
    made.add_argument("--quick", action="store_true", help="each once and small, printed, nothing kept")
    made.add_argument("--profile", type=Path, metavar="FOLDER", help="each once and recorded, nothing else kept")
    made.add_argument("--repeats", type=int, default=3)
    made.add_argument("--engines", default="", help="by commas; none: all, of many without tally")
    made.add_argument("--sizes", default="2000000,8000000", help="rides to drain, by commas")
    made.add_argument("--keys", default="W1,W2,W3", help="5, 265 and 10,000 keys, by commas")
    made.add_argument("--pipelines", default="16,64", help="functions on one topic, by commas")
    made.add_argument("--rates", default="500,5000", help="sales a second for them, by commas")
    made.add_argument("--fresh", default="2000,20000", help="sales a second for one pipeline, by commas")
    made.add_argument("--seconds", type=float, default=75.0, help="how long a live engine is looked at, once warm")
    made.add_argument("--kills", type=int, default=3, help="in each run")
    made.add_argument("--to", type=Path, default=REPO / "docs" / "performance.json", help="its workloads are replaced")
    return made


def small(given: argparse.Namespace) -> argparse.Namespace:
    """What --quick asks for."""
    given.repeats, given.sizes, given.keys, given.kills = 1, "200000", "W1", 1
    given.pipelines, given.rates, given.fresh, given.seconds = "4", "200", "500", 20.0
    return given


def numbers(text: str) -> list[int]:
    return [int(word) for word in text.split(",")]


def runs_of(workload: str, given: argparse.Namespace) -> Iterator[results.Run]:
    """The runs of one workload, in turns."""
    named = given.engines.split(",") if given.engines else []
    # Sixteen queries of their own are no match for two cores: `python -m bench many` shows it.
    usual = FOLLOWING[1:] if workload == "many" else FOLLOWING
    live = {"engines": [name for name in named if name in FOLLOWING] or usual, "repeats": given.repeats}
    if workload == "drain":
        with fresh_home() as home, tempfile.TemporaryDirectory(prefix="tally-peers-") as folder:
            from tally.base.settings import settings

            assert settings().home == home
            yield from drain.measure(
                settings().bootstrap(), Path(folder), sizes=numbers(given.sizes),
                keys=given.keys.split(","), engines=named or ENGINES, repeats=given.repeats,
                profile=given.profile,
            )  # fmt: skip
    elif workload == "kill":
        yield from killing.measure(rate=numbers(given.fresh)[0], kills=given.kills, **live)
    else:
        pairs = [(count, rate) for count in numbers(given.pipelines) for rate in numbers(given.rates)]
        chosen = pairs if workload == "many" else [(1, rate) for rate in numbers(given.fresh)]
        cases = [(workload, count, rate) for count, rate in chosen]
        yield from following.measure(cases=cases, seconds=given.seconds, profile=given.profile, **live)


def main() -> int:
    given = parser().parse_args()
    for number in (signal.SIGTERM, signal.SIGINT):  # all that runs is ended on the way out
        signal.signal(number, lambda number, _: sys.exit(128 + number))
    if unknown := set(filter(None, given.engines.split(","))) - set(ENGINES):
        raise SystemExit(f"no engine is called {', '.join(sorted(unknown))}: there are {', '.join(ENGINES)}")
    if given.quick:
        given = small(given)
    if given.profile is not None:
        given.repeats = 1
        given.profile = given.profile.absolute()
        given.profile.mkdir(parents=True, exist_ok=True)
    asked = given.workloads or WORKLOADS
    kept = not (given.quick or given.profile)
    found = results.here()
    if kept and given.to.exists():
        found.runs = results.read(given.to).without(asked).runs
    for workload in asked:
        for run in runs_of(workload, given):
            found.runs.append(run)
            print(page.line(run), flush=True)
            if kept:
                results.write(found, given.to)
    if given.quick:
        print(page.tables(found))
    return 1 if any(run.wrong for run in found.runs) else 0


if __name__ == "__main__":
    sys.exit(main())

"""`python -m faults.planted`: harm the product's own data from outside, and see that a schedule catches each harm.

`--seed N --only NAME` carries one plant out again; `--clean N` runs that many stories without any harm. Exit code: 0
when every harm was caught and no clean run raised an alarm.
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
import time
from collections.abc import Iterable
from pathlib import Path

from faults.planted import campaign, clean
from faults.planted.catalog import PLANTS


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m faults.planted", description=__doc__)
    parser.add_argument("--seed", type=int, default=int(time.time()) % 100_000, help="the campaign's; else the clock's")
    parser.add_argument("--only", action="append", metavar="NAME", help="plants whose name has this; may be repeated")
    parser.add_argument("--clean", type=int, default=0, metavar="N", help="so many runs without harm, and no plants")
    parser.add_argument("--json", type=Path, help="write the outcomes to this file too")
    given = parser.parse_args()
    wanted = {name: plant for name, plant in PLANTS.items() if any(part in name for part in given.only or [""])}
    print(f"seed {given.seed}, {given.clean or len(wanted)} {'clean runs' if given.clean else 'plants'}", flush=True)
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # so that the broker is stopped
    began = time.monotonic()
    outcomes: list[campaign.Outcome] = []
    with campaign.running() as (folder, bootstrap):
        if given.clean:
            return cleanly(clean.runs(folder, bootstrap, given.seed, given.clean), given.json)
        for one in campaign.campaign(folder, bootstrap, wanted, given.seed):
            outcomes.append(one)
            print(f"{one.seconds:5.1f} s  {one.name}: {one.verdict.by}: {one.verdict.words[:300]}", flush=True)
            for wrong in one.verdict.wrong[:3]:
                print(f"         WRONG {wrong}", flush=True)
            if given.json:
                given.json.write_text(json.dumps([as_dict(each) for each in outcomes], indent=1))
    print(campaign.table(outcomes))
    missed = [one.name for one in outcomes if not one.verdict.caught]
    print(f"{len(outcomes)} plants in {time.monotonic() - began:.0f} s, {len(missed)} not caught: {missed}")
    return 1 if missed else 0


def cleanly(found: Iterable[clean.Clean], path: Path | None) -> int:
    """Print each run without harm as it ends, and all of them at last."""
    done: list[clean.Clean] = []
    for one in found:
        done.append(one)
        print(f"{one.seconds:5.1f} s  {one.name}, seed {one.seed}: {'; '.join(one.alarms) or 'no alarm'}", flush=True)
        if path:
            path.write_text(json.dumps([each.as_dict() for each in done], indent=1))
    print(clean.table(done))
    alarmed = [one.seed for one in done if one.alarms]
    print(f"{len(done)} clean runs, {len(alarmed)} false alarms: {alarmed}")
    return 1 if alarmed else 0


def as_dict(one: campaign.Outcome) -> dict[str, object]:
    found = one.verdict
    return {
        "name": one.name, "where": one.plant.where, "kind": one.plant.kind, "when": one.plant.when, "by": found.by,
        "words": found.words, "wrong": found.wrong, "held": len(found.held), "seconds": one.seconds, "said": one.said,
    }  # fmt: skip


if __name__ == "__main__":
    sys.exit(main())

"""`python -m faults`: put every fault on a running Tally, and say what became of each event.

`--seed N --only NAME` carries one of them out again. Exit code: 0 when every invariant held, 1 when one did not.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

from faults import report
from faults.catalog import KINDS
from faults.run import carry_out


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m faults", description=__doc__)
    parser.add_argument("--seed", type=int, default=int(time.time()) % 100_000, help="the campaign's; else the clock's")
    parser.add_argument("--only", action="append", choices=list(KINDS), help="just this fault; may be repeated")
    parser.add_argument("--seconds", type=float, help="how long each fault goes on, instead of its own time")
    parser.add_argument("--json", type=Path, help="write the results to this file too")
    given = parser.parse_args()
    results: list[report.Result] = []
    try:
        for name in given.only or KINDS:
            print(f"{name}: seed {given.seed} (python -m faults --seed {given.seed} --only '{name}')", flush=True)
            results.append(carry_out(KINDS[name], given.seed, given.seconds))
            print(report.table(results[-1:]), flush=True)
            if given.json:
                report.write(results, given.json)
    except KeyboardInterrupt:
        print("interrupted; all that ran is stopped", file=sys.stderr)
        return 130
    print(report.table(results))
    return 1 if any(result.all_broken for result in results) else 0


if __name__ == "__main__":
    sys.exit(main())

"""`python -m bench [NAME…]`: one JSON line a measurement; without a name, all of them in order."""

from __future__ import annotations

import argparse
import json
import os
import sys

from bench import (
    agreeing,
    archive,
    catching_up,
    copies,
    decode,
    differing,
    first_pass,
    freshness,
    haul,
    hops,
    idle,
    imports,
    log,
    many,
    month,
    open_windows,
    parts,
    proof,
    restate,
    scattered,
    supervision,
)

MEASUREMENTS = {
    "proof": proof.measure,
    "scattered": scattered.measure,
    "agreeing": agreeing.measure,
    "differing": differing.measure,
    "first_pass": first_pass.measure,
    "restate": restate.measure,
    "month": month.measure,
    "freshness": freshness.measure,
    "many": many.measure,
    "catching_up": catching_up.measure,
    "copies": copies.measure,
    "log": log.measure,
    "haul": haul.measure,
    "archive": archive.measure,
    "decode": decode.measure,
    "supervision": supervision.measure,
    "idle": idle.measure,
    "imports": imports.measure,
    "hops": hops.measure,
    "parts": parts.measure,
    "open_windows": open_windows.measure,
}


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("names", nargs="*", choices=[*MEASUREMENTS, []])
    parser.add_argument("--rides", type=int, default=2_000_000, help="rides of the proof")
    parser.add_argument("--micro-batch", type=int, default=100_000, help="most records of the proof's micro-batches")
    parser.add_argument("--windows", default="300,3000,30000", help="numbers of scattered windows, by commas")
    parser.add_argument("--kinds", default="tumbling,hopping,session", help="kinds of scattered windows, by commas")
    parser.add_argument("--agreeing", default="60,600,6000", help="numbers of windows that agree, by commas")
    parser.add_argument("--rows", default="100000,1000000", help="numbers of rows of which three differ, by commas")
    parser.add_argument("--events", type=int, default=1_000_000, help="archived events that are stated again")
    parser.add_argument("--turns", type=int, default=3, help="how often each way of these takes its turn")
    parser.add_argument("--seconds", type=float, default=180.0, help="length of the freshness measurement")
    parser.add_argument("--rate", type=float, default=2_000.0, help="rides a second of the freshness measurement")
    parser.add_argument("--pipelines", type=int, default=16, help="pipelines on one topic in one driver")
    parser.add_argument("--many-events", type=float, default=500.0, help="events a second for them")
    parser.add_argument("--many-seconds", type=float, default=90.0, help="how long they are looked at, once warm")
    parser.add_argument("--open-groups", default="1000,10000,100000,1000000", help="numbers of open groups, by commas")
    parser.add_argument("--bids", type=int, default=200_000, help="events that a stream catches up on")
    parser.add_argument("--drained", type=int, default=2_000_000, help="rides that are drained, some of them twice")
    parser.add_argument("--topics", default="plain,ids,same,other", help="what lies on their topics, by commas")
    parser.add_argument("--ways", default="own,shared", help="own, shared; of many: flink")
    parser.add_argument(
        "--entries", type=int, default=172_800, help="entries of the long log: two days of a second each"
    )
    parser.add_argument("--hauled", type=int, default=2_000, help="micro-batches of the long haul")
    parser.add_argument("--haul-ms", type=float, default=40.0, help="about how long one of them takes here")
    parser.add_argument("--haul-fold", type=int, default=16, help="files of a day for which its keeper folds that")
    parser.add_argument("--archived", type=int, default=1_000_000, help="rides that are archived and decoded again")
    parser.add_argument(
        "--decoded", type=int, default=500_000, help="records of each topic that are decoded, both ways"
    )
    parser.add_argument("--kills", type=int, default=20, help="drivers that are killed under supervision")
    parser.add_argument("--hangs", type=int, default=5, help="drivers that are stopped (SIGSTOP) under supervision")
    parser.add_argument("--kill-rate", type=float, default=50.0, help="rides a second meanwhile")
    parser.add_argument("--idle-seconds", type=float, default=900.0, help="length of the look at twenty idle streams")
    given = parser.parse_args()
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # else each process compiles all that it imports anew
    for name in given.names or MEASUREMENTS:
        print(json.dumps({"measurement": name, **MEASUREMENTS[name](given)}), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())

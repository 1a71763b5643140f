"""The way of a ride through the code: which module calls which while a verb runs, and which of them call each other."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from bench.home import fresh_home, tally

RIDES = ("produce", "rides", "--past", "1 hour", "--rate", "1", "--count", "3000", "--seed", "1")
# Run in a process of its own: the calls of all threads, from one module of the product to another.
PROGRAM = """
import json, sys, threading
root, out = sys.argv[1], sys.argv[2]
seen = set()

def module(frame):
    file = frame.f_code.co_filename
    return file[len(root) + 1 : -3].replace("/", ".") if file.startswith(root) else None

def called(frame, event, _):
    if event != "call":
        return
    mine = module(frame)
    if mine is None or frame.f_code.co_name == "<module>" or frame.f_code.co_flags & 0x20:  # a generator goes on
        return
    above = frame.f_back
    while above is not None and module(above) is None:
        above = above.f_back
    if above is not None and module(above) != mine:
        seen.add((module(above), mine))

import tally.cli
sys.argv = ["tally", *sys.argv[3:]]
threading.setprofile(called)
sys.setprofile(called)
try:
    tally.cli.main()
finally:
    sys.setprofile(None)
    with open(out, "w") as file:
        json.dump(sorted(seen), file)
"""


def measure(_: argparse.Namespace) -> dict[str, Any]:
    """For each verb: modules that ran, calls between two of them, and pairs that call each other."""
    with fresh_home():
        tally(*RIDES)
        hour = datetime.now(UTC).replace(minute=0, second=0, microsecond=0)
        span = ("--from", (hour - timedelta(hours=3)).isoformat(), "--to", (hour + timedelta(hours=2)).isoformat())
        verbs = {"stream": ("--until-caught-up",), "batch": span, "reconcile": (), "read": ()}
        return {verb: counted(calls((verb, "vendor_trips", *more))) for verb, more in verbs.items()}


def calls(words: tuple[str, ...]) -> set[tuple[str, str]]:
    import tally as product

    root = os.path.dirname(os.path.dirname(os.path.abspath(product.__file__)))
    with tempfile.TemporaryDirectory(prefix="tally-hops-") as folder:
        out = Path(folder) / "calls.json"
        command = [sys.executable, "-c", PROGRAM, root, str(out), *words, "--json"]
        subprocess.run(command, capture_output=True, check=False)
        return {(one, two) for one, two in json.loads(out.read_text())}


def counted(found: set[tuple[str, str]]) -> dict[str, Any]:
    both = sorted({(min(pair), max(pair)) for pair in found if pair[::-1] in found})
    return {
        "modules": len({name for pair in found for name in pair}),
        "hops": len(found),
        "back_and_forth": [f"{one} <-> {two}" for one, two in both],
    }

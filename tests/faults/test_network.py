"""What a campaign lays out for its faults is cut when it should be, and gone afterwards: a network, an environment."""

from __future__ import annotations

import os
import subprocess
from ipaddress import IPv4Network
from pathlib import Path

import pytest

from faults import network, report
from faults.catalog import KINDS
from faults.network import HOSTS, Network, free_pair
from faults.run import carry_out
from faults.stack import Stack, until

needs_namespaces = pytest.mark.skipif(bool(network.lacking()), reason=network.lacking())
CONNECT = "import socket, sys; socket.create_connection((sys.argv[1], int(sys.argv[2])), timeout=2)"


def reached(made: Network, address: str) -> bool:
    host, port = address.split(":")
    command = [*made.inside, "python3", "-c", CONNECT, host, port]
    return subprocess.run(command, stderr=subprocess.DEVNULL, check=False, timeout=20).returncode == 0


def left(made: Network) -> str:
    """What there is of a network on this machine."""
    shown = [["ip", "netns", "list"], ["ip", "-o", "link"]]
    text = "".join(subprocess.run(words, stdout=subprocess.PIPE, text=True, check=True).stdout for words in shown)
    return " ".join(name for name in (made.name, made.here, made.there) if name in text)


@needs_namespaces
def test_a_network_can_be_cut_and_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TALLY_HOME", str(tmp_path / "home"))
    made = Network(tmp_path)
    try:
        address = made.open()
        assert until(lambda: reached(made, address), 60), "a broker listens at this end"
        made.cut()
        assert not reached(made, address)
        made.join()
        assert until(lambda: reached(made, address), 10)
        assert left(made)
    finally:
        made.close()
    assert not left(made) and not (HOSTS / made.name).exists() and not made.pidfile.exists()
    made.close()  # an interrupted campaign may close what is closed, or half open


@needs_namespaces
def test_its_address_is_one_that_no_route_knows() -> None:
    pair = free_pair()
    assert pair.subnet_of(IPv4Network("198.18.0.0/15")) and pair.num_addresses == 4


def test_where_no_network_can_be_made_the_fault_is_not_run_and_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(network, "lacking", lambda: "it needs root")
    result = carry_out(KINDS["network cut"], seed=1)
    assert "network cut (seed 1): not run, it needs root" in report.table([result])
    assert report.row(result)[-1] == "not run"


def test_the_environment_of_a_run_ends_with_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    monkeypatch.setenv("TALLY_TRIGGER_SECONDS", "7")
    before = dict(os.environ)
    stack = Stack(("shop_minutes",), TZ="Europe/Berlin")
    assert (os.environ["TZ"], os.environ["TALLY_TRIGGER_SECONDS"]) == ("Europe/Berlin", "0.2")
    os.environ["TALLY_KAFKA"] = "set while it runs"
    stack.close()
    assert dict(os.environ) == before

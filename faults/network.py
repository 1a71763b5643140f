"""A network that can be cut: the broker stays in the machine's, supervisor and driver stand in one of their own.

A pair of virtual cables joins the two, at an address that nothing else here has; no route leads from it to anywhere.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import socket
import subprocess
from contextlib import suppress
from ipaddress import IPv4Network
from pathlib import Path

from tally.base.settings import settings
from tally.embedded.broker_files import broker_command, format_storage, free_port, write_configuration
from tally.host import process

# For tests of networks alone (RFC 2544): no machine that anybody wants to reach has an address of it.
TESTS = IPv4Network("198.18.0.0/15")
BINDS = Path("/run/netns")  # where iproute2 keeps namespaces, on a mount of its own
HOSTS = Path("/etc/netns")


def lacking() -> str:
    """Why no network can be made here; "" where one can."""
    if os.geteuid():
        return "it needs root"
    return "" if shutil.which("ip") else "iproute2 is not installed"


class Network:
    """One namespace and its cable; nothing is there before `open`, and nothing after `close`."""

    def __init__(self, folder: Path) -> None:
        self.name = f"tally-{os.getpid()}"
        self.here, self.there = f"tf{os.getpid()}a", f"tf{os.getpid()}b"
        self.inside = ["ip", "netns", "exec", self.name]
        self.pidfile = folder / "broker.json"
        self.mounted = BINDS.is_mount()

    def open(self) -> str:
        """Lay the cable, and start a broker at this end of it; its address and port."""
        pair = free_pair()
        ours, theirs = (str(address) for address in pair.hosts())
        ip("netns", "add", self.name)
        ip("link", "add", self.here, "type", "veth", "peer", "name", self.there)
        ip("link", "set", self.there, "netns", self.name)
        ip("addr", "add", f"{ours}/{pair.prefixlen}", "dev", self.here)
        ip("link", "set", self.here, "up")
        ip("-n", self.name, "addr", "add", f"{theirs}/{pair.prefixlen}", "dev", self.there)
        ip("-n", self.name, "link", "set", "lo", "up")
        self.join()
        hosts = HOSTS / self.name / "hosts"  # seen inside as /etc/hosts: Spark asks for its own machine's name
        hosts.parent.mkdir(parents=True)
        hosts.write_text(f"127.0.0.1 localhost\n127.0.0.1 {socket.gethostname()}\n")
        return self.broker(ours)

    def cut(self) -> None:
        ip("-n", self.name, "link", "set", self.there, "down")

    def join(self) -> None:
        ip("-n", self.name, "link", "set", self.there, "up")

    def broker(self, address: str) -> str:
        """The embedded broker, but for its address."""
        port, run = free_port(), settings()
        folder, log = run.home / "kafka", run.home / "logs" / "kafka.log"
        write_configuration(run, folder, port=port, controller_port=free_port(), log=log)
        file = folder / "server.properties"
        file.write_text(file.read_text().replace("PLAINTEXT://127.0.0.1", f"PLAINTEXT://{address}"))
        format_storage(run, folder)
        process.start(broker_command(run, folder), log, self.pidfile)
        return f"{address}:{port}"

    def close(self) -> None:
        """Take all of it away, however much there is of it."""
        process.stop(self.pidfile, patience=5.0)
        ip("netns", "del", self.name, check=False)
        ip("link", "del", self.here, check=False)
        shutil.rmtree(HOSTS / self.name, ignore_errors=True)
        with suppress(OSError):
            HOSTS.rmdir()  # not where others have theirs
        if not self.mounted:  # refused while another namespace is there
            subprocess.run(["umount", str(BINDS)], stderr=subprocess.DEVNULL, check=False)
            with suppress(OSError):
                BINDS.rmdir()


def ip(*words: str, check: bool = True) -> None:
    told = None if check else subprocess.DEVNULL
    subprocess.run(["ip", *words], stderr=told, check=check)


def free_pair() -> IPv4Network:
    """Four addresses that no route of this machine knows but its default one."""
    routes = json.loads(subprocess.run(["ip", "-j", "-4", "route"], stdout=subprocess.PIPE, check=True).stdout)
    taken = [IPv4Network(route["dst"], strict=False) for route in routes if route["dst"] != "default"]
    pairs = list(TESTS.subnets(new_prefix=30))
    return next(pair for pair in random.sample(pairs, len(pairs)) if not any(map(pair.overlaps, taken)))

"""One Airflow per TALLY_HOME: its own folder, port and session of processes; started once, found again, stopped whole.

It is `airflow standalone` with everything small: one parser, four task slots, SQLite. Streams do not depend on it.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import urllib.request
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from tally.base.errors import TallyError
from tally.base.settings import REPO, Settings, settings
from tally.embedded import login
from tally.embedded.broker_files import free_port, is_free
from tally.embedded.tidy import tidy, url
from tally.host import lock, process
from tally.host.waiting import until

# Each with one slot: two JVMs at once are slower on two cores than one after the other. A backfill beside a batch is
# the exception, so that the batch need not wait. Together they are less than the four tasks that run at once.
POOL, BACKFILL_POOL, SUPERVISION_POOL = "tally_spark", "tally_backfill", "tally_supervision"
POOLS = {
    POOL: "Archives and batches, one at a time",
    BACKFILL_POOL: "What can wait: backfills, reconciliations by hand, maintenance",
    SUPERVISION_POOL: "Looks after the streams",
}
DEFAULT_PORT = 8080
# Seconds until all four parts answer: 21-35 s alone on two cores, three times that beside a starting stream.
START_PATIENCE = 240.0
STOP_PATIENCE = 40.0  # a graceful stop of all parts takes 6 s; a running task is given the rest
ANSWER = 10.0


@dataclass(frozen=True, kw_only=True)
class Running:
    """Where this home's Airflow is; `note` says when its port is not the usual one."""

    url: str
    port: int
    pid: int
    started: bool
    note: str


def start(*, wait: bool = True) -> Running:
    """Have this home's Airflow running, and healthy when `wait`; doing so again changes nothing."""
    run = settings()
    with lock.hold(run.home / "run" / "launch-airflow.lock", wait=START_PATIENCE):
        found, note = process.find(pidfile(run)), ""
        started = found is None
        if found is None:
            process.stop(pidfile(run))  # what a crash may have left of the last one
            port, note = choose_port()
            login.close_off(run)
            tidied = tidy(run, environment(run, port))
            found = launch(run, port, tidied)
        port = int(process.read_json(pidfile(run))["port"])
    running = Running(url=f"http://localhost:{port}", port=port, pid=found.pid, started=started, note=note)
    if wait:
        wait_until_healthy(running, found)
        make_pools(running)
    return running


def stop() -> bool:
    """End all of this home's Airflow; True when something ran. Stream drivers live on."""
    file = pidfile(settings())
    leader = process.find(file)
    if leader is not None:  # to all at once: standalone alone would leave its parts behind, and tasks lead groups
        for part in (leader, *process.session_of(file)):
            with suppress(psutil.Error):
                part.terminate()
        until(lambda: process.ended(leader) and not process.session_of(file), seconds=STOP_PATIENCE, every=0.2)
    return process.stop(file) or leader is not None


def pidfile(run: Settings) -> Path:
    """{"pid", "created", "port"} of the session that holds all its processes."""
    return run.home / "run" / "airflow.json"


def log_path(run: Settings) -> Path:
    return run.home / "logs" / "airflow.log"


def launch(run: Settings, port: int, tidied: str = "") -> psutil.Process:
    """Start the session; it is found again by its pid file. What was tidied before is said in its log."""
    log = log_path(run)
    log.parent.mkdir(parents=True, exist_ok=True)
    if tidied:
        with log.open("a") as out:
            print(tidied, file=out)
    command = [str(Path(sys.executable).parent / "airflow"), "standalone"]
    with log.open("ab") as out:
        child = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=out,
            start_new_session=True,
            env=environment(run, port),
        )
    leader = psutil.Process(child.pid)
    process.write_json(pidfile(run), {**process.identity(leader), "port": port})
    child.returncode = 0  # it outlives us: nobody waits for it, and Popen must not warn about that
    return leader


def environment(run: Settings, port: int) -> dict[str, str]:
    """Airflow's settings; what the environment already sets wins, but for what makes it this home's."""
    small = {
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        "AIRFLOW__CORE__DAGS_ARE_PAUSED_AT_CREATION": "False",
        **login.environment(run),
        "AIRFLOW__CORE__DEFAULT_TIMEZONE": "utc",
        # 12 processes and 1.25 GB instead of 40: two cores have no use for more.
        "AIRFLOW__CORE__PARALLELISM": "4",
        "AIRFLOW__DAG_PROCESSOR__PARSING_PROCESSES": "1",
        "AIRFLOW__DAG_PROCESSOR__REFRESH_INTERVAL": "30",
        "AIRFLOW__DAG_PROCESSOR__MIN_FILE_PROCESS_INTERVAL": "60",
        "AIRFLOW__API__WORKERS": "1",
        # A task gives up on its API server after 5 s; while everything starts on two cores that is too soon.
        "AIRFLOW__WORKERS__EXECUTION_API_TIMEOUT": "30",
        "AIRFLOW__USAGE_DATA_COLLECTION__ENABLED": "False",
        "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": url(run),
        "TALLY_SPARK_POOL": POOL,
        "TALLY_BACKFILL_POOL": BACKFILL_POOL,
        "TALLY_SUPERVISION_POOL": SUPERVISION_POOL,
        "GX_ANALYTICS_ENABLED": "false",
    }
    ours = {
        "AIRFLOW_HOME": str(run.home / "airflow"),
        "AIRFLOW__CORE__DAGS_FOLDER": str(REPO / "dags"),
        "AIRFLOW__CORE__EXECUTION_API_SERVER_URL": f"http://localhost:{port}/execution/",
        "AIRFLOW__API__HOST": "127.0.0.1",
        "AIRFLOW__API__PORT": str(port),
        "AIRFLOW__API__BASE_URL": f"http://localhost:{port}",
        "AIRFLOW__LOGGING__WORKER_LOG_SERVER_PORT": str(free_port()),
        "AIRFLOW__LOGGING__TRIGGER_LOG_SERVER_PORT": str(free_port()),
        "TALLY_HOME": str(run.home),
        "TALLY_CATALOG": str(run.catalog),
        "TALLY_JARS": str(run.jars),
        "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")]),
    }
    return {**small, **os.environ, **ours}


def choose_port() -> tuple[int, str]:
    """The configured port or an error; else 8080, or a free one and a word on it."""
    port = settings().airflow_port if "TALLY_AIRFLOW_PORT" in os.environ else DEFAULT_PORT
    if is_free(port):
        return port, ""
    if "TALLY_AIRFLOW_PORT" in os.environ:
        raise TallyError(
            f"port {port} for Airflow's UI is in use",
            field="TALLY_AIRFLOW_PORT",
            cure="stop what listens there, set another port, or unset it to have a free one taken",
        )
    other = free_port()
    return other, f"port {port} is in use, so Airflow is on {other} (TALLY_AIRFLOW_PORT sets one)"


def health(url: str) -> dict[str, str]:
    """What each part says of itself; empty while nothing answers."""
    with (
        suppress(OSError, ValueError),
        urllib.request.urlopen(f"{url}/api/v2/monitor/health", timeout=ANSWER) as answer,
    ):
        parts: dict[str, dict[str, Any]] = json.load(answer)
        return {name: str(part.get("status")) for name, part in parts.items()}
    return {}


def wait_until_healthy(running: Running, leader: psutil.Process) -> None:
    """Return once every part is healthy; a TallyError with the log's last lines when it will not be."""
    parts: dict[str, str] = {}

    def is_healthy() -> bool:
        nonlocal parts
        parts = health(running.url)
        return all(parts.get(part) == "healthy" for part in ("metadatabase", "scheduler", "dag_processor", "triggerer"))

    over = until(lambda: process.ended(leader) or is_healthy(), seconds=START_PATIENCE, every=0.5)
    if over and not process.ended(leader):
        return
    run = settings()
    ill = ", ".join(f"{name} {state}" for name, state in parts.items() if state != "healthy") or "nothing answers"
    what = "ended while starting" if process.ended(leader) else f"is not healthy after {START_PATIENCE:.0f} s ({ill})"
    raise TallyError(
        f"Airflow {what}; the last lines of {log_path(run)}:\n{process.tail(log_path(run))}",
        cure="mend what the log names",
    )


# In Airflow's database, as its own command has it. Its API would take them too, but on SQLite it stands still for
# minutes where a request writes while a task reports: each waits for the other in the one process of both.
MAKE = """
import json, sys
from airflow.models.pool import Pool
from airflow.utils.session import create_session
with create_session() as session:
    there = {one.pool for one in session.query(Pool)}
    for name, what in json.loads(sys.argv[1]).items():
        if name not in there:
            session.add(Pool(pool=name, slots=1, description=what, include_deferred=False))
"""


def make_pools(running: Running) -> None:
    """Have each pool there; one that is there already keeps the slots that somebody gave it."""
    command = [sys.executable, "-c", MAKE, json.dumps(POOLS)]
    said = ""

    def are_there() -> bool:
        nonlocal said
        done = subprocess.run(
            command, env=environment(settings(), running.port), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, text=True, errors="replace", check=False,
        )  # fmt: skip
        said = (done.stdout.strip().splitlines() or [""])[-1]
        return done.returncode == 0

    if not until(are_there, seconds=START_PATIENCE, every=1.0):
        cure = "; ".join(f"airflow pools set {name} 1 '{what}'" for name, what in POOLS.items())
        raise TallyError(f"Airflow's pools cannot be made: {said}", cure=cure)


def token(running: Running) -> str:
    """What this home's admin uses Airflow's API by."""
    who = {"username": login.ADMIN, "password": login.password(settings())}
    return str(request(f"{running.url}/auth/token", who, "")["access_token"])


def request(url: str, body: dict[str, Any] | None, token: str) -> dict[str, Any]:
    """One request to Airflow's API: POST with a body, GET without; the answer's document."""
    headers = {"Content-Type": "application/json", **({"Authorization": f"Bearer {token}"} if token else {})}
    data = None if body is None else json.dumps(body).encode()
    with urllib.request.urlopen(urllib.request.Request(url, data, headers), timeout=ANSWER) as answer:
        document: dict[str, Any] = json.load(answer)
        return document

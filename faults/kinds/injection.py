"""Whatever Airflow's REST API takes is tried with what one could inject: no command runs, and no wish changes."""

from __future__ import annotations

import json
import re
import time
import urllib.error
import urllib.request
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

from faults import corpus
from faults.run import Run
from faults.stack import an_airflow, until
from tally.base.settings import settings
from tally.control import streams
from tally.embedded import airflow

PIPELINE = "shop_minutes"
# Airflow lists its DAGs a little after it is healthy; a run of one task takes 3 s, beside a stream and a broker 20.
DAGS_SECONDS, RUN_SECONDS = 120.0, 180.0
GOOD: dict[str, dict[str, Any]] = {
    "control": {"pipeline": PIPELINE, "action": "resume", "why": ""},
    "backfill": {"pipeline": PIPELINE, "from": "2026-11-01T10:00:00Z", "to": "2026-11-01T11:00:00Z", "dry_run": True},
    "reconcile": {"pipelines": [PIPELINE], "from": "2026-11-01T10:00:00Z", "to": "2026-11-01T11:00:00Z"},
}
FIELDS = [(dag, field) for dag, form in GOOD.items() for field in form if field != "why"] + [
    ("backfill", "chunk_hours")
]
# A reason is free text, so that each makes a run: those that could do harm in a template, a shell, a store or a log.
WHY = (
    "shell substitution", "jinja command", "jinja sum", "sql drop", "ansi", "log line", "rich markup", "empty",
)  # fmt: skip
NO_WHY = ("nul", "surrogate", "long")
# Names of runs that Airflow takes for good ones; one that looks like an option and one that looks like a folder do.
RUN_ID = re.compile(r"[A-Za-z0-9_.~:+-]+")
RUN_IDS = ("option help",)
BODIES: dict[str, bytes] = {
    "nothing": b"", "no JSON": b"why=x", "half of it": b'{"conf": {', "a list": b"[]", "null": b"null", "text": b'"x"',
    "a list for conf": b'{"logical_date": null, "conf": []}', "text for conf": b'{"logical_date": null, "conf": "x"}',
    "no such time": b'{"logical_date": "9999-99-99T00:00:00Z"}', "no such key": b'{"logical_date": null, "nope": 1}',
    "a number for a name": b'{"logical_date": null, "dag_run_id": 7}', "not UTF-8": b'{"conf": {"why": "\xff\xfe"}}',
    "deep": b'{"logical_date": null, "conf": ' + b'{"a":' * 100_000 + b"1" + b"}" * 100_001,
    "10 MB": json.dumps({"logical_date": None, "conf": {**GOOD["control"], "why": "x" * 10_000_000}}).encode(),
}  # fmt: skip


@dataclass(frozen=True)
class Api:
    """One Airflow's REST API, as somebody with a token sees it."""

    url: str
    token: str

    def ask(self, path: str, body: bytes | None = None) -> tuple[int, str]:
        """Status and text of an answer; 0 where there was none."""
        headers = {"Content-Type": "application/json", "Authorization": f"Bearer {self.token}"}
        try:
            with urllib.request.urlopen(urllib.request.Request(self.url + path, body, headers), timeout=60) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode(errors="replace")
        except OSError as error:
            return 0, str(error)

    def trigger(self, dag: str, conf: Any, **more: Any) -> tuple[int, str]:
        body = json.dumps({"logical_date": None, "conf": conf, **more})
        return self.ask(f"/api/v2/dags/{quote(dag, safe='')}/dagRuns", body.encode())

    def ended(self, dag: str, run: str) -> str:
        """The state that a run ends in; the one it is in, where that takes too long."""
        where, state = f"/api/v2/dags/{dag}/dagRuns/{quote(run, safe='')}", [""]

        def over() -> bool:
            status, text = self.ask(where)
            state[0] = json.loads(text)["state"] if status == 200 else state[0]
            return state[0] in ("success", "failed")

        until(over, RUN_SECONDS, 1.0)
        return state[0]


def injected(run: Run) -> None:
    """All of the corpus in every field, wrong bodies, names and fields; afterwards everything is as it was."""
    run.stack.stop_supervising()
    canary = run.stack.folder / "canary"
    with an_airflow() as running:
        api = Api(running.url, airflow.token(running))
        if not until(lambda: all(api.ask(f"/api/v2/dags/{dag}")[0] == 200 for dag in GOOD), DAGS_SECONDS, 1.0):
            run.broken("I6", "Airflow does not list the DAGs")
        before = streams.desired_states()
        answers = (
            refused_by_the_form(run, api, canary) + refused_as_bodies(run, api) + refused_as_names(run, api, canary)
        )
        failed = no_such_field(run, api) + accepted_names(run, api, canary)
        if streams.desired_states() != before:
            run.broken("I6", f"a wish was changed: {streams.desired_states()}")
        kept = reasons(run, api, canary)
        if canary.exists():
            run.broken("I6", f"a command was run: {canary.read_text()}")
        if set(airflow.health(running.url).values()) != {"healthy"}:
            run.broken("I6", f"Airflow is not healthy: {airflow.health(running.url)}")
        since = time.monotonic()
        run.heals("all that was injected", since, by="nothing was wrong")
    run.one_writer()
    run.result.notes.append(
        f"{answers} requests refused, {failed} runs failed with a line, {kept} reasons kept as text"
    )


def refused(run: Run, what: str, answer: tuple[int, str]) -> int:
    """One request that must be the sender's fault; 1, to be counted.

    Airflow itself answers 500 to a text that is no UTF-8, because its database refuses it: nothing of it is kept.
    """
    if not 400 <= answer[0] < (501 if what.endswith(", surrogate") else 500):
        run.broken("I6", f"{what}: {answer[0]} {answer[1][:200]}")
    return 1


def refused_by_the_form(run: Run, api: Api, canary: Path) -> int:
    """Every value in every field that is no free text; what the form lets through, its run refuses."""
    count = 0
    for dag, field in FIELDS:
        for name, value in corpus.values(canary).items():
            status, text = api.trigger(dag, {**GOOD[dag], field: value})
            if status == 200:
                fails_with(run, api, dag, json.loads(text)["dag_run_id"], f"{dag} {field}, {name}", field)
            else:
                refused(run, f"{dag} {field}, {name}", (status, text))
            count += 1
    for name, value in corpus.values(canary).items():
        if name.startswith("long"):
            count += refused(run, f"control why, {name}", api.trigger("control", {**GOOD["control"], "why": value}))
    return count


def refused_as_bodies(run: Run, api: Api) -> int:
    return sum(
        refused(run, f"a body that is {name}", api.ask("/api/v2/dags/control/dagRuns", body))
        for name, body in BODIES.items()
    )


def refused_as_names(run: Run, api: Api, canary: Path) -> int:
    """Every value for a DAG, and those for a run that are no name of one."""
    count = 0
    for name, value in corpus.values(canary).items():
        if name != "surrogate":  # no URL holds one
            path = f"/api/v2/dags/{quote(value, safe='')}/dagRuns"
            if value and len(value) < 1000:
                count += refused(run, f"a DAG's name, {name}", api.ask(path, b'{"logical_date": null, "conf": {}}'))
        if not RUN_ID.fullmatch(value):
            answer = api.trigger("control", {**GOOD["control"], "nope": 1}, dag_run_id=value)
            if answer[0] == 200:  # an empty one is none, and Airflow gives it one
                fails_with(run, api, "control", json.loads(answer[1])["dag_run_id"], f"a run's name, {name}", "nope")
            else:
                count += refused(run, f"a run's name, {name}", answer)
    return count


def accepted_names(run: Run, api: Api, canary: Path) -> int:
    """Names of runs that Airflow takes although they look like an option or a folder do nothing but name it."""
    given = [corpus.values(canary)[name] for name in RUN_IDS] + [".."]
    for name in given:
        status, text = api.trigger("control", {**GOOD["control"], "nope": 1}, dag_run_id=name)
        if status == 200:
            fails_with(run, api, "control", json.loads(text)["dag_run_id"], f"a run named {name}", "nope")
    return len(given)


def no_such_field(run: Run, api: Api) -> int:
    """A field that a form lacks, or that a DAG without a form is given, is refused by name in each DAG."""
    forms = {**GOOD, f"batch__{PIPELINE}": {}, "archive__faults.orders": {}, "maintain": {}}
    for dag, form in forms.items():
        status, text = api.trigger(dag, {**form, "form": "2026-11-01T10:00:00Z"})
        if status == 200:
            fails_with(run, api, dag, json.loads(text)["dag_run_id"], f"{dag}, no such field", "form")
        else:
            refused(run, f"{dag}, no such field", (status, text))
    return len(forms)


def fails_with(run: Run, api: Api, dag: str, named: str, what: str, field: str) -> None:
    """A run that Airflow takes fails, and its log names the field, without a traceback."""
    state, log = api.ended(dag, named), log_of(dag, named)
    if state != "failed":
        run.broken("I6", f"{what}: its run is {state or 'not to be found'}")
    elif field not in log or "Traceback" in log or "cure: " not in log:
        run.broken("I6", f"{what}: its log does not say so in a line: {log[-300:]}")


def log_of(dag: str, named: str) -> str:
    """What the tasks of a run wrote."""
    folder = settings().home / "airflow" / "logs" / f"dag_id={dag}" / f"run_id={named}"
    return "\n".join(file.read_text(errors="replace") for file in sorted(folder.rglob("*.log")))


def reasons(run: Run, api: Api, canary: Path) -> int:
    """Free text is kept word by word, whatever it looks like; what no store can keep is refused."""
    kept, values = 0, corpus.values(canary)
    for name in (*WHY, *NO_WHY):
        was = streams.wanted(PIPELINE)
        status, text = api.trigger("control", {**GOOD["control"], "why": values[name]})
        if name in NO_WHY:
            if status == 200:
                fails_with(run, api, "control", json.loads(text)["dag_run_id"], f"control why, {name}", "why")
            else:
                refused(run, f"control why, {name}", (status, text))
            if streams.wanted(PIPELINE) != was:
                run.broken("I6", f"control why, {name}: the wish was changed")
            continue
        state = api.ended("control", json.loads(text)["dag_run_id"]) if status == 200 else f"{status} {text[:200]}"
        wish = streams.wanted(PIPELINE)
        if state != "success" or (wish["why"], wish["state"]) != (values[name], "running"):
            run.broken("I6", f"control why, {name}: {state}, kept as {wish['why'][:100]!r}")
        kept += 1
    return kept

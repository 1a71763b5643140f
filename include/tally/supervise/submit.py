"""What a cluster would be asked: the exact commands that hand a stream driver over, ask for it and end it, as values.

They are those that the Spark provider of Airflow builds. Spark has them for Kubernetes; for YARN it submits, and YARN's
own command asks and ends.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Protocol

from tally.base.errors import TallyError
from tally.base.settings import REPO, Settings
from tally.lake.session import spark_conf, spark_home

SCRIPT = Path("spark") / "stream.py"
STAYS_HERE = ("TALLY_WEBHOOK", "TALLY_WEBHOOK_SECRET", "TALLY_NOTIFIERS")


class Submission(Protocol):
    """One kind of cluster."""

    app: str

    def require(self) -> None: ...
    def standing(self) -> str: ...
    def submit(self, command: Sequence[str]) -> list[str]: ...
    def job(self, words: str) -> str: ...
    def status(self, job: str) -> list[str]: ...
    def state(self, code: int, words: str) -> bool | None: ...
    def kill(self, job: str) -> list[str]: ...


class Kubernetes:
    """A pod for the driver, which makes pods for its executors; a job is `namespace:pod`.

    The pod's name is the app's, so that Kubernetes itself takes no second one.
    """

    def __init__(self, run: Settings, app: str) -> None:
        self.run, self.app = run, app
        self.pod = re.sub(r"[^a-z0-9-]+", "-", f"tally-stream-{app}".lower())[:60].strip("-")

    def require(self) -> None:
        """Refuse settings with which a pod could not find its world."""
        needed(self.run, master="k8s://")
        if not self.run.image:
            raise TallyError(
                "no image", field="TALLY_IMAGE", cure="name the image that holds Tally, Spark and the jars"
            )

    def standing(self) -> str:
        """The job that a driver of this app always is."""
        return f"{self.run.namespace}:{self.pod}"

    def submit(self, command: Sequence[str]) -> list[str]:
        there = self.run.installed.rstrip("/")
        conf = {
            **conf_there(self.run),
            "spark.kubernetes.container.image": self.run.image,
            "spark.kubernetes.authenticate.driver.serviceAccountName": self.run.service_account,
            "spark.kubernetes.driver.pod.name": self.pod,
            "spark.kubernetes.submission.waitAppCompletion": "false",
            **self.run.more_conf,
        }
        secrets = {name.rpartition(".")[2] for name in conf if name.startswith("spark.kubernetes.driver.secretKeyRef.")}
        env = {name: value for name, value in env_there(self.run).items() if name not in secrets}
        arguments = [f"--conf=spark.kubernetes.driverEnv.{name}={value}" for name, value in env.items()]
        head = [*master(self.run), *pairs(conf), *split(arguments)]
        head += ["--conf", f"spark.kubernetes.namespace={self.run.namespace}"]
        return [*head, *named(self.app), f"local://{there}/{SCRIPT}", *command[2:]]

    def job(self, words: str) -> str:
        return self.standing()

    def status(self, job: str) -> list[str]:
        return [*master(self.run), "--status", job]

    def state(self, code: int, words: str) -> bool | None:
        """Alive by the pod's phase; no pod of that name is one that is over, any other silence is no answer."""
        if phase := re.search(r"^\s*phase: (\w+)", words, re.M):
            return phase[1] not in ("Succeeded", "Failed")
        return False if "Application not found" in words else None

    def kill(self, job: str) -> list[str]:
        return [*master(self.run), "--kill", job]


class Yarn:
    """An application whose master is the driver; a job is YARN's id of it."""

    def __init__(self, run: Settings, app: str) -> None:
        self.run, self.app = run, app

    def require(self) -> None:
        """Refuse settings with which the driver could not find its world."""
        needed(self.run, master="yarn")
        if not {"HADOOP_CONF_DIR", "YARN_CONF_DIR"} & set(os.environ):
            raise TallyError(
                "no address of YARN", field="HADOOP_CONF_DIR", cure="set it to the cluster's configuration"
            )

    def standing(self) -> str:
        """No job: YARN gives each application an id of its own, so none has to be cleared away before the next."""
        return ""

    def submit(self, command: Sequence[str]) -> list[str]:
        conf = {**conf_there(self.run), "spark.yarn.submit.waitAppCompletion": "false", **self.run.more_conf}
        env = [f"--conf=spark.yarn.appMasterEnv.{name}={value}" for name, value in env_there(self.run).items()]
        queue = ["--queue", self.run.queue] if self.run.queue else []
        # YARN takes the script from here; what it imports, each node has.
        script = str(REPO / SCRIPT)
        return [*master(self.run), *pairs(conf), *split(env), *named(self.app, queue), script, *command[2:]]

    def job(self, words: str) -> str:
        found = re.search(r"application_\d+_\d+", words)
        return found[0] if found else ""

    def status(self, job: str) -> list[str]:
        return ["yarn", "application", "-status", job]

    def state(self, code: int, words: str) -> bool | None:
        if found := re.search(r"^\s*State : (\w+)", words, re.M):
            return found[1] not in ("FINISHED", "FAILED", "KILLED")
        return False if "doesn't exist in RM" in words else None

    def kill(self, job: str) -> list[str]:
        return ["yarn", "application", "-kill", job]


def needed(run: Settings, master: str) -> None:
    """What a driver on another machine cannot have from this one."""
    if not run.spark_master.startswith(master):
        cure = f"set it to {master}{'HOST:PORT' if '://' in master else ''}"
        raise TallyError(f"{run.spark_master} is not of {run.launcher}", field="TALLY_SPARK_MASTER", cure=cure)
    rules = {
        "TALLY_KAFKA": (run.kafka, "set it to your cluster: the embedded broker is of this machine alone"),
        "TALLY_LAKE": (run.lake, "set it to a URI, or a folder that every machine has"),
        "TALLY_CHECKPOINTS": (run.checkpoints, "set it to a URI, or a folder that every machine has"),
        "TALLY_CONTROL": ("" if run.control.startswith("sqlite") else run.control, "set it to the URL of a Postgres"),
    }
    for field, (value, cure) in rules.items():
        if not value:
            raise TallyError("a driver elsewhere cannot reach what is here", field=field, cure=cure)


def conf_there(run: Settings) -> dict[str, str]:
    """Spark's configuration of a driver, with paths as they are in the image or on the node."""
    there = run.installed.rstrip("/")
    conf = spark_conf(run, run.stream_memory)
    jars = sorted(Path(jar).name for jar in conf["spark.jars"].split(","))
    moved = {name: value.replace(str(REPO), there) for name, value in conf.items() if name not in run.more_conf}
    return {
        **moved,
        "spark.jars": ",".join(f"local://{there}/.jars/spark/{jar}" for jar in jars),
        "spark.pyspark.python": f"{there}/.venv/bin/python",
        "spark.pyspark.driver.python": f"{there}/.venv/bin/python",
    }


def env_there(run: Settings) -> dict[str, str]:
    """The settings that the driver shall see: those that are set here, with paths as they are there.

    They stand in the pod's or the application's description, for whoever may see it: by whom and how people are told
    of incidents is often a secret, and is none of a driver's business there.
    """
    there = run.installed.rstrip("/")
    ours = {name: value for name, value in sorted(os.environ.items()) if name.startswith("TALLY_")}
    ours = {name: value for name, value in ours.items() if name not in STAYS_HERE}
    catalog = str(run.catalog).replace(str(REPO), there)
    return {**ours, "TALLY_CATALOG": catalog, "TALLY_HOME": str(run.home), "TALLY_JARS": f"{there}/.jars"}


def master(run: Settings) -> list[str]:
    return [str(spark_home() / "bin" / "spark-submit"), "--master", run.spark_master]


def pairs(conf: Mapping[str, str]) -> list[str]:
    return split([f"--conf={name}={value}" for name, value in conf.items()])


def split(options: Sequence[str]) -> list[str]:
    """`--conf=a` as the two words that spark-submit wants."""
    return [word for option in options for word in option.split("=", 1)]


def named(app: str, queue: Sequence[str] = ()) -> list[str]:
    return ["--name", f"tally-stream-{app}", *queue, "--deploy-mode", "cluster"]

"""What a cluster would be asked, as values: the words of the provider's own hook, and all that a driver there needs."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path

import pytest

from tally.base.errors import TallyError
from tally.base.settings import REPO, settings
from tally.supervise import submit
from tally.supervise.launch import DRIVER, cluster

ELSEWHERE = {
    "TALLY_KAFKA": "kafka:9092",
    "TALLY_LAKE": "s3a://lake",
    "TALLY_CHECKPOINTS": "s3a://lake/checkpoints",
    "TALLY_CONTROL": "postgresql+psycopg://tally@db/tally",
    "TALLY_CATALOG": str(REPO / "spark"),
}
MASTER = {"kubernetes": "k8s://https://api:6443", "yarn": "yarn"}
KIND = {"kubernetes": submit.Kubernetes, "yarn": submit.Yarn}


@pytest.fixture(autouse=True)
def own_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("TALLY_") and name != "TALLY_JARS"]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("TALLY_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("HADOOP_CONF_DIR", str(tmp_path))


@pytest.fixture(params=["kubernetes", "yarn"])
def kind(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    name = str(request.param)
    chosen = {"TALLY_LAUNCHER": name, "TALLY_SPARK_MASTER": MASTER[name], "TALLY_IMAGE": "registry/tally:1"}
    for setting, value in {**ELSEWHERE, **chosen}.items():
        monkeypatch.setenv(setting, value)
    return name


def asked(kind: str) -> list[str]:
    return KIND[kind](settings(), "tally").submit((*DRIVER, "vendor_trips"))


def confs(words: list[str]) -> dict[str, str]:
    """Every --conf of a command."""
    pairs = [words[at + 1].split("=", 1) for at, word in enumerate(words) if word == "--conf"]
    assert len(dict(pairs)) == len(pairs), "one is given twice"  # type: ignore[arg-type]
    return {name: value for name, value in pairs}


def hooks(monkeypatch: pytest.MonkeyPatch, conf: Mapping[str, str]) -> list[str]:
    """What the provider would run, told the same in its own words."""
    from airflow.providers.apache.spark.hooks import spark_submit

    run = settings()
    monkeypatch.setattr(spark_submit, "kube_client", object(), raising=False)  # it is there to build the command too
    document = {"conn_type": "spark", "host": run.spark_master, "extra": {"queue": run.queue, "namespace": "default"}}
    monkeypatch.setenv("AIRFLOW_CONN_SPARK_DEFAULT", json.dumps(document))
    hook = spark_submit.SparkSubmitHook(
        conf=dict(conf),
        env_vars=submit.env_there(run),
        name="tally-stream-tally",
        deploy_mode="cluster",
        spark_binary=str(submit.spark_home() / "bin" / "spark-submit"),
        application_args=["vendor_trips"],
    )
    application = asked(run.launcher)[-2]
    return list(hook._build_spark_submit_command(application))


def test_it_is_word_for_word_what_the_provider_would_run(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TALLY_QUEUE", "streams" if kind == "yarn" else "")
    words = asked(kind)
    of_its_own = ("spark.kubernetes.driverEnv.", "spark.yarn.appMasterEnv.", "spark.kubernetes.namespace")
    conf = {name: value for name, value in confs(words).items() if not name.startswith(of_its_own)}
    assert words == hooks(monkeypatch, conf)


def test_the_driver_is_sent_with_its_image_its_jars_and_its_arguments(kind: str) -> None:
    words, conf = asked(kind), confs(asked(kind))
    assert words[words.index("--deploy-mode") + 1] == "cluster"
    assert words[words.index("--master") + 1] == MASTER[kind]
    assert words[-1] == "vendor_trips"
    jars = conf["spark.jars"].split(",")
    assert {Path(jar).name for jar in jars} == {jar.name for jar in (settings().jars / "spark").glob("*.jar")}
    assert all(jar.startswith("local:///opt/tally/.jars/spark/") for jar in jars)
    assert conf["spark.pyspark.python"] == "/opt/tally/.venv/bin/python"
    if kind == "kubernetes":
        assert words[-2] == "local:///opt/tally/spark/stream.py"
        assert conf["spark.kubernetes.container.image"] == "registry/tally:1"
    else:
        assert Path(words[-2]).is_file()


def test_no_path_of_this_machine_goes_along_and_every_setting_does(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TALLY_TRIGGER_SECONDS", "5")
    prefix = {"kubernetes": "spark.kubernetes.driverEnv.", "yarn": "spark.yarn.appMasterEnv."}[kind]
    conf = confs(asked(kind))
    env = {name.removeprefix(prefix): value for name, value in conf.items() if name.startswith(prefix)}
    there = {name: value for name, value in ELSEWHERE.items() if name != "TALLY_CATALOG"}
    assert env.items() >= {**there, "TALLY_CATALOG": "/opt/tally/spark", "TALLY_TRIGGER_SECONDS": "5"}.items()
    home = str(settings().home)
    assert [(name, value) for name, value in conf.items() if str(REPO) in value and home not in value] == []


def test_more_configuration_wins_and_a_secret_stands_in_no_argument(monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    secret = "spark.kubernetes.driver.secretKeyRef.TALLY_CONTROL=tally:control"
    monkeypatch.setenv("TALLY_SPARK_CONF", f"spark.executor.instances=3 spark.driver.memory=3g {secret}")
    words = asked(kind)
    assert confs(words).items() >= {"spark.executor.instances": "3", "spark.driver.memory": "3g"}.items()
    if kind == "kubernetes":
        assert not any(ELSEWHERE["TALLY_CONTROL"] in word for word in words)


def test_how_people_are_told_stays_here(monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    for name in submit.STAYS_HERE:
        monkeypatch.setenv(name, "https://hooks.example.com/s3cret")
    words = asked(kind)
    assert not any("s3cret" in word or "WEBHOOK" in word for word in words)


@pytest.mark.parametrize("missing", ["TALLY_KAFKA", "TALLY_LAKE", "TALLY_CHECKPOINTS", "TALLY_CONTROL"])
def test_what_a_driver_elsewhere_cannot_reach_is_named(
    kind: str, missing: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(missing)
    with pytest.raises(TallyError) as refused:
        cluster().start(DRIVER, tmp_path / "driver.log")
    assert refused.value.field == missing and refused.value.cure


def test_a_master_of_another_kind_is_refused(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TALLY_SPARK_MASTER", "local[2]")
    with pytest.raises(TallyError) as refused:
        cluster().start(DRIVER, tmp_path / "driver.log")
    assert refused.value.field == "TALLY_SPARK_MASTER"


KUBERNETES = """\
26/01/02 10:00:00 INFO K8SSparkSubmitOperation: Application status (driver):
\t pod name: tally-stream-tally
\t namespace: default
\t phase: {}
"""
YARN = "Application Report :\n\tApplication-Id : application_1_2\n\tState : {}\n\tFinal-State : UNDEFINED\n"


@pytest.mark.parametrize(
    ("kind", "code", "words", "alive"),
    [
        ("kubernetes", 0, KUBERNETES.format("Pending"), True),
        ("kubernetes", 0, KUBERNETES.format("Running"), True),
        ("kubernetes", 0, KUBERNETES.format("Unknown"), True),
        ("kubernetes", 0, KUBERNETES.format("Succeeded"), False),
        ("kubernetes", 0, KUBERNETES.format("Failed"), False),
        ("kubernetes", 0, "Application not found.\n", False),
        ("kubernetes", 1, "java.net.ConnectException: Connection refused", None),
        ("yarn", 0, YARN.format("ACCEPTED"), True),
        ("yarn", 0, YARN.format("RUNNING"), True),
        ("yarn", 0, YARN.format("FINISHED"), False),
        ("yarn", 0, YARN.format("KILLED"), False),
        ("yarn", 255, "Application with id 'application_1_2' doesn't exist in RM or Timeline Server.", False),
        ("yarn", 1, "Retrying connect to server", None),
    ],
    indirect=["kind"],
)
def test_only_what_is_said_to_be_over_is_over(kind: str, code: int, words: str, alive: bool | None) -> None:
    assert KIND[kind](settings(), "tally").state(code, words) is alive


def test_a_job_is_asked_for_and_ended_by_its_id(kind: str) -> None:
    one = KIND[kind](settings(), "tally")
    if kind == "kubernetes":
        assert one.job("") == "default:tally-stream-tally"
        assert one.status("default:x")[-4:] == ["--master", MASTER[kind], "--status", "default:x"]
        assert one.kill("default:x")[-4:] == ["--master", MASTER[kind], "--kill", "default:x"]
    else:
        assert one.job("INFO Client: Submitted application application_17_0042\n") == "application_17_0042"
        assert one.status("application_17_0042") == ["yarn", "application", "-status", "application_17_0042"]
        assert one.kill("application_17_0042") == ["yarn", "application", "-kill", "application_17_0042"]


def test_a_command_that_is_not_installed_is_named(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(submit, "spark_home", lambda: Path("/nowhere"))
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(TallyError, match="there is no "):
        cluster().lives("x")

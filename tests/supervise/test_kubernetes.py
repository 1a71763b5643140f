"""The real spark-submit and a Kubernetes of few answers: what it makes of our words, and what it says of a pod."""

from __future__ import annotations

import json
import os
import re
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import yaml

from tally.base.errors import AnswerIsNo, TallyError
from tally.supervise.launch import DRIVER, cluster

pytestmark = pytest.mark.long

POD = "default:tally-stream-tally"


class Handler(BaseHTTPRequestHandler):
    """One request to the stand-in."""

    protocol_version = "HTTP/1.1"
    server: Api

    def do_GET(self) -> None:
        path, _, query = self.path.partition("?")
        name = path.rpartition("/pods/")[2] if "/pods/" in path else ""
        name = name or "".join(re.findall(r"metadata.name(?:%3D|=)([\w-]+)", query))
        chosen = [pod for key, pod in self.server.pods.items() if name in ("", key)]
        if "watch=true" in query:
            events = [json.dumps({"type": "ADDED", "object": pod}) for pod in chosen]
            self.answer(200, "\n".join(events) + "\n")
        elif path.endswith("/pods"):
            self.answer(200, {"kind": "PodList", "apiVersion": "v1", "metadata": {}, "items": chosen})
        else:
            self.answer(200 if chosen else 404, chosen[0] if chosen else missing(name))

    def do_POST(self) -> None:
        body = self.body()
        self.server.made.append((body["kind"], body))
        made = {**body, "metadata": {**body["metadata"], "uid": "u-1", "resourceVersion": "1"}}
        if body["kind"] == "Pod":
            made["status"] = {"phase": "Pending"}
            self.server.pods[body["metadata"]["name"]] = made
        self.answer(201, made)

    do_PUT = do_PATCH = do_POST

    def do_DELETE(self) -> None:
        self.body()
        pod = self.server.pods.pop(self.path.partition("?")[0].rpartition("/")[2], None)
        self.answer(200 if pod else 404, pod or missing("it"))

    def body(self) -> Any:
        if self.headers.get("Transfer-Encoding") != "chunked":
            return yaml.safe_load(self.rfile.read(int(self.headers.get("Content-Length") or 0))) or {}
        data = b""
        while size := int(self.rfile.readline(), 16):
            data += self.rfile.read(size)
            self.rfile.readline()
        self.rfile.readline()
        return yaml.safe_load(data) or {}

    def answer(self, code: int, document: Any) -> None:
        data = (document if isinstance(document, str) else json.dumps(document)).encode()
        self.send_response(code)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: object) -> None:
        pass


class Api(ThreadingHTTPServer):
    """As much of Kubernetes as takes a pod, gives it back and deletes it."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.pods: dict[str, dict[str, Any]] = {}
        self.made: list[tuple[str, dict[str, Any]]] = []
        self.url = f"http://127.0.0.1:{self.server_address[1]}"
        threading.Thread(target=self.serve_forever, daemon=True).start()


def missing(name: str) -> dict[str, Any]:
    return {"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "NotFound", "code": 404,
            "message": f'pods "{name}" not found'}  # fmt: skip


@pytest.fixture
def api(home: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Api]:
    for name in [name for name in os.environ if name.startswith("TALLY_") and name != "TALLY_JARS"]:
        monkeypatch.delenv(name)
    served = Api()
    chosen = {
        "HOME": tmp_path / "home", "LAUNCHER": "kubernetes", "SPARK_MASTER": f"k8s://{served.url}",
        "IMAGE": "registry/tally:1", "KAFKA": "kafka:9092", "LAKE": "/mnt/lake", "CHECKPOINTS": "/mnt/checkpoints",
        "CONTROL": "postgresql://db/tally",
    }  # fmt: skip
    for name, value in chosen.items():
        monkeypatch.setenv(f"TALLY_{name}", str(value))
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "none"))
    yield served
    served.shutdown()
    served.server_close()


def test_one_pod_is_made_asked_for_and_ended(api: Api, tmp_path: Path) -> None:
    log = tmp_path / "driver.log"
    started = cluster().start((*DRIVER, "vendor_trips"), log)
    assert started == POD
    (pod,) = [body for kind, body in api.made if kind == "Pod"]
    (driver,) = pod["spec"]["containers"]
    env = {item["name"]: item.get("value") for item in driver["env"]}
    assert pod["metadata"]["name"] == "tally-stream-tally"
    assert driver["image"] == "registry/tally:1" and pod["spec"]["serviceAccountName"] == "spark"
    assert env["TALLY_KAFKA"] == "kafka:9092" and env["TALLY_JARS"] == "/opt/tally/.jars"
    assert "local:///opt/tally/spark/stream.py" in driver["args"] and driver["args"][-1] == "vendor_trips"
    properties = next(body for kind, body in api.made if kind == "ConfigMap" and "spark.properties" in body["data"])
    assert "/opt/tally/.jars/spark/" in properties["data"]["spark.properties"]

    assert cluster().lives(started)
    with pytest.raises(AnswerIsNo, match="runs already"):
        cluster().start(DRIVER, log)
    api.pods["tally-stream-tally"]["status"]["phase"] = "Failed"
    assert not cluster().lives(started)
    assert cluster().start(DRIVER, log) == started, "one that is over gives its name to the next"
    assert cluster().stop(started)
    assert api.pods == {} and not cluster().lives(started)
    assert not cluster().stop(started)


def test_a_cluster_that_does_not_answer_is_not_a_dead_driver(api: Api) -> None:
    api.shutdown()
    api.server_close()
    with pytest.raises(TallyError, match="does not say how"):
        cluster().lives(POD)

"""Telling people: a real receiver gets each incident's opening and end, and one that is dead breaks nothing."""

from __future__ import annotations

import hashlib
import hmac
import json
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from tally.control import incidents
from tally.embedded.broker_files import free_port
from tally.supervise.send_notices import send_notices


class Receiver:
    """A webhook: what it was sent, and what it answers to which incident."""

    def __init__(self) -> None:
        self.got: list[dict[str, Any]] = []
        self.keys: list[str] = []
        self.answers: dict[int, int] = {}
        self.signatures: list[str | None] = []
        self.bodies: list[bytes] = []
        self.visits = 0
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                message = json.loads(body)
                receiver.visits += 1
                receiver.bodies.append(body)
                receiver.signatures.append(self.headers["X-Tally-Signature"])
                answer = receiver.answers.get(message["id"], 204)
                if answer == 204:
                    receiver.got.append(message)
                    receiver.keys.append(self.headers["Idempotency-Key"])
                self.send_response(answer)
                if answer == 302:
                    self.send_header("Location", receiver.url)
                self.end_headers()

            def do_GET(self) -> None:  # what a redirect of a POST becomes
                receiver.visits += 1
                self.send_response(204)
                self.end_headers()

            def log_message(self, *_: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}/hook/s3cret"
        threading.Thread(target=self.server.serve_forever, args=(0.02,), daemon=True).start()

    def stop(self) -> None:
        self.server.shutdown()
        self.server.server_close()


@pytest.fixture(autouse=True)
def own_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TALLY_HOME", str(tmp_path))
    for name in ("TALLY_CONTROL", "TALLY_WEBHOOK", "TALLY_NOTIFIERS"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def webhook(monkeypatch: pytest.MonkeyPatch) -> Iterator[Receiver]:
    receiver = Receiver()
    monkeypatch.setenv("TALLY_WEBHOOK", receiver.url)
    yield receiver
    receiver.stop()


def test_a_webhook_gets_one_document_when_it_opens_and_one_when_it_is_over(webhook: Receiver) -> None:
    number = incidents.report("trips", "stream failed", "no disk", cure="make room")
    assert send_notices() == ["told people of 1 of 1 incidents"]
    assert send_notices() == ["nothing new to tell"]
    incidents.close("trips", "stream failed", done="room was made")
    send_notices()
    opened, closed = webhook.got
    assert (opened["id"], opened["state"], closed["id"], closed["state"]) == (number, "open", number, "closed")
    assert webhook.keys == [f"{number}-open", f"{number}-closed"]
    assert opened["text"] == "OPEN trips: stream failed. no disk (make room)"
    assert closed["text"] == "CLOSED trips: stream failed. no disk (room was made)"
    assert opened["closed_at"] is None and closed["closed_at"].endswith("Z")
    assert opened["first_seen"] == closed["first_seen"]


def test_a_dead_webhook_is_one_line_without_its_secret_and_is_tried_again(
    webhook: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TALLY_WEBHOOK", f"http://127.0.0.1:{free_port()}/hook/s3cret")
    for cause in ("a", "b", "c"):
        incidents.report("trips", cause, "x")
    summary, line = send_notices()
    assert summary == "told people of 0 of 3 incidents"
    assert line.startswith("webhook failed, and is tried again: ") and "refused" in line
    assert "s3cret" not in line
    monkeypatch.setenv("TALLY_WEBHOOK", webhook.url)
    assert send_notices() == ["told people of 3 of 3 incidents"]
    assert [message["cause"] for message in webhook.got] == ["a", "b", "c"]


def test_an_address_that_cannot_be_used_is_said_without_its_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TALLY_WEBHOOK", "http://127.0.0.1:9/hook/s3 cret?token=s3cret")
    incidents.report("trips", "a", "x")
    _, line = send_notices()
    assert "control characters" in line and "s3" not in line


def test_a_channel_that_does_not_answer_is_tried_once_a_turn() -> None:
    tried: list[int] = []

    def pager(message: dict[str, Any]) -> None:
        tried.append(message["id"])
        raise TimeoutError("no answer in 10 s")

    for cause in ("a", "b", "c"):
        incidents.report("trips", cause, "x")
    send_notices({"pager": pager})
    assert len(tried) == 1
    send_notices({"pager": pager})
    assert len(tried) == 2


def test_one_document_that_is_refused_holds_up_no_other(webhook: Receiver) -> None:
    bad = incidents.report("trips", "a", "x")
    incidents.report("trips", "b", "x")
    webhook.answers[bad] = 400
    summary, line = send_notices()
    assert summary == "told people of 1 of 2 incidents" and "400" in line
    assert [message["cause"] for message in webhook.got] == ["b"]
    del webhook.answers[bad]
    send_notices()
    assert [message["cause"] for message in webhook.got] == ["b", "a"]


def test_a_channel_that_has_heard_is_not_told_again_because_another_failed(webhook: Receiver) -> None:
    said: list[str] = []

    def pager(message: dict[str, Any]) -> None:
        if not said:
            said.append("tried")
            raise RuntimeError("no such\nroute")
        said.append(message["state"])

    incidents.report("trips", "stream failed", "no disk")
    assert send_notices({"pager": pager}) == [
        "told people of 0 of 1 incidents",
        "pager failed, and is tried again: no such",
    ]
    assert send_notices({"pager": pager}) == ["told people of 1 of 1 incidents"]
    assert said == ["tried", "open"]
    assert len(webhook.got) == 1


def test_with_nobody_to_tell_nothing_is_taken_for_told(monkeypatch: pytest.MonkeyPatch, webhook: Receiver) -> None:
    incidents.report("trips", "stream failed", "no disk")
    monkeypatch.delenv("TALLY_WEBHOOK")
    assert send_notices() == ["nobody to tell: TALLY_WEBHOOK and TALLY_NOTIFIERS are empty"]
    monkeypatch.setenv("TALLY_WEBHOOK", webhook.url)
    assert send_notices() == ["told people of 1 of 1 incidents"]


def test_an_address_that_is_no_url_is_refused_when_it_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    from pydantic import ValidationError

    from tally.base.settings import settings

    for address in ("file:///etc/passwd", "ftp://localhost/s3cret", "https:s3cret", "gopher://s3cret"):
        monkeypatch.setenv("TALLY_WEBHOOK", address)
        with pytest.raises(ValidationError, match="not a URL") as refused:
            settings()
        assert "s3cret" not in str(refused.value)
    for address in ("http://hooks.example.com/s3cret", "http://127.0.0.1.example.com/", "http://localhost@10.0.0.1/"):
        monkeypatch.setenv("TALLY_WEBHOOK", address)
        with pytest.raises(ValidationError, match="in clear to another machine"):
            settings()
    for address in ("https://hooks.example.com/s3cret", "HTTPS://a/b", "http://localhost:9/a", "http://[::1]:9/a"):
        monkeypatch.setenv("TALLY_WEBHOOK", address)
        assert settings().webhook == address


def test_a_document_is_signed_by_who_knows_the_secret(webhook: Receiver, monkeypatch: pytest.MonkeyPatch) -> None:
    incidents.report("trips", "a", "x")
    send_notices()
    assert webhook.signatures == [None]
    monkeypatch.setenv("TALLY_WEBHOOK_SECRET", "s3cret")
    incidents.close("trips", "a")
    before = int(time.time())
    send_notices()
    said = dict(part.split("=") for part in str(webhook.signatures[1]).split(","))
    assert before <= int(said["t"]) <= time.time()
    mine = hmac.new(b"s3cret", f"{said['t']}.".encode() + webhook.bodies[1], hashlib.sha256).hexdigest()
    assert said["v1"] == mine and "s3cret" not in webhook.bodies[1].decode()


def test_no_redirect_is_followed(webhook: Receiver) -> None:
    number = incidents.report("trips", "a", "x")
    webhook.answers[number] = 302
    summary, line = send_notices()
    assert summary == "told people of 0 of 1 incidents" and "302" in line
    assert webhook.got == [] and webhook.visits == 1


def test_a_channel_that_hangs_holds_up_no_other(webhook: Receiver, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tally.supervise.send_notices.HUNG_AFTER", 0.2)
    for cause in ("a", "b"):
        incidents.report("trips", cause, "x")
    over, paged = threading.Event(), list[str]()
    channels = {"mail": lambda _: bool(over.wait(30)) and None, "pager": lambda one: paged.append(one["cause"])}
    summary, line = send_notices(channels)
    over.set()
    assert summary == "told people of 0 of 2 incidents"
    assert line == "mail failed, and is tried again: no answer in 0 s"
    assert [one["cause"] for one in webhook.got] == paged == ["a", "b"]

"""Sends on what people were not told of yet: to the webhook of the settings, and to whatever channels the caller has.

A channel that fails is said in one line and tried again at the next turn; nothing that a channel does is raised.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import threading
import time
import urllib.request
from collections.abc import Callable, Mapping
from contextvars import copy_context
from typing import Any
from urllib.error import HTTPError
from urllib.parse import urlsplit

from tally.base.settings import settings
from tally.control import notices

Send = Callable[[dict[str, Any]], None]

WEBHOOK, SIGNATURE = "webhook", "X-Tally-Signature"
# Incidents are few and a turn comes every minute or so: a receiver that needs longer is not waited for.
PATIENCE = 10.0
# A notifier has no time-out of its own; a mail server that is slow, and answers, is still waited for.
HUNG_AFTER = 30.0


def send_notices(channels: Mapping[str, Send] | None = None) -> list[str]:
    """Send each channel what it has not heard; a line for all that was sent, and one for each channel that failed."""
    ways = {**({WEBHOOK: post} if settings().webhook else {}), **(channels or {})}
    if not ways:
        return ["nobody to tell: TALLY_WEBHOOK and TALLY_NOTIFIERS are empty"]
    failures: dict[str, list[str]] = {}
    silent: set[str] = set()
    news, whole = notices.untold(), 0
    for item in news:
        message, heard = worded(item), set(item.heard)
        for name in [name for name in ways if name not in heard and name not in silent]:
            try:
                in_time(ways[name], message)
            except Exception as error:
                failures.setdefault(name, []).append(in_a_line(error))
                if not isinstance(error, HTTPError):  # one that answers may refuse this document and take the next
                    silent.add(name)
                continue
            heard.add(name)
            notices.heard(item.incident.id, item.incident.state, name)
        if heard >= set(ways):
            notices.told(item.incident.id, item.incident.state)
            whole += 1
    lines = [f"told people of {whole} of {len(news)} incidents" if news else "nothing new to tell"]
    return lines + [f"{name} failed, and is tried again: {errors[0]}" for name, errors in failures.items()]


def in_time(send: Send, message: dict[str, Any]) -> None:
    """Send, and leave behind a channel that hangs: those after it, and what is next, are not to wait for ever."""
    raised: list[Exception] = []

    def run() -> None:
        try:
            send(message)
        except Exception as error:
            raised.append(error)

    thread = threading.Thread(target=copy_context().run, args=(run,), name="tell", daemon=True)
    thread.start()
    thread.join(HUNG_AFTER)
    if thread.is_alive():
        raise TimeoutError(f"no answer in {HUNG_AFTER:.0f} s")
    for error in raised:
        raise error


def worded(item: notices.News) -> dict[str, Any]:
    """The document of one incident; `text` is the line that chat services show, `id` and `state` tell a repetition."""
    told = item.incident.as_json()
    where = told["pipeline"] or "all pipelines"
    text = f"{told['state'].upper()} {where}: {told['cause']}. {told['evidence']}"
    word = told["done"] if told["state"] == "closed" else told["cure"]
    names = ("id", "state", "pipeline", "cause", "evidence", "cure", "done", "times")
    return {
        **{name: told[name] for name in (*names, "first_seen", "last_seen", "closed_at")},
        "host": settings().host_name,
        "home": str(settings().home),
        "text": f"{text} ({word})" if word else text,
    }


class NoDetour(urllib.request.HTTPRedirectHandler):
    """Follows no redirect: it leads where nobody said that incidents may go, and drops the document on the way."""

    def redirect_request(self, *_: Any) -> None:
        return None


def post(message: dict[str, Any]) -> None:
    """POST one document to the webhook, signed where there is a secret; any answer but success is raised."""
    body = json.dumps(message).encode()
    headers = {"Content-Type": "application/json", "Idempotency-Key": f"{message['id']}-{message['state']}"}
    if secret := settings().webhook_secret:
        headers[SIGNATURE] = signature(body, secret, int(time.time()))
    request = urllib.request.Request(settings().webhook, body, headers, method="POST")
    with urllib.request.build_opener(NoDetour).open(request, timeout=PATIENCE):
        pass


def signature(body: bytes, secret: str, at: int) -> str:
    """Who sent a document and when, in seconds since the epoch: an old one that somebody kept is told by its time."""
    made = hmac.new(secret.encode(), f"{at}.".encode() + body, hashlib.sha256).hexdigest()
    return f"t={at},v1={made}"


def in_a_line(error: Exception) -> str:
    """What went wrong, without the webhook's path: it is often all that keeps others from using it."""
    words = str(error).strip().splitlines()
    said = words[0] if words else type(error).__name__
    if not settings().webhook:
        return said
    parts = urlsplit(settings().webhook)
    secret = settings().webhook.split(parts.netloc, 1)[1]
    return said.replace(secret, "/…") if len(secret) > 1 else said

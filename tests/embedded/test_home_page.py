"""What a person sees first: Airflow's home page, in a browser, without an error on it."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tally.embedded import airflow
from tally.embedded.broker import down

BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome", "chrome"))), None)
PATIENCE = 120.0  # seconds of the page's own clock, which runs ahead of ours while nothing is to be waited for


@pytest.fixture
def running(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[airflow.Running]:
    """An embedded Airflow of its own."""
    monkeypatch.setenv("TALLY_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("TALLY_AIRFLOW_PORT", raising=False)
    monkeypatch.setenv("AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_ALL_ADMINS", "True")  # a browser that cannot type
    try:
        yield airflow.start()
    finally:
        airflow.stop()
        down()  # the streams that it has started live on


@pytest.mark.long
@pytest.mark.skipif(BROWSER is None, reason="no Chromium is installed here")
def test_the_first_page_has_no_error(running: airflow.Running, tmp_path: Path) -> None:
    page = looked_at(running.url, tmp_path)
    assert "Plugin Import Error" not in page and "Import Error" not in page, page[-4000:]
    assert "Active Dags" in page, "this is not the home page, or it is not there yet"


def looked_at(url: str, folder: Path) -> str:
    """The text of a page once its scripts have run; what it looks like is in page.png."""
    assert BROWSER is not None
    head = [
        BROWSER, "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
        f"--user-data-dir={folder / 'profile'}", f"--virtual-time-budget={int(PATIENCE * 1000)}",
        "--window-size=1400,1200",
    ]  # fmt: skip
    env = {**os.environ, "HOME": str(folder)}
    for what in (f"--screenshot={folder / 'page.png'}", "--dump-dom"):
        done = subprocess.run([*head, what, url], env=env, capture_output=True, text=True, timeout=300, check=True)
    return re.sub(r"<(script|style).*?</\1>|<[^>]+>", " ", done.stdout, flags=re.S)

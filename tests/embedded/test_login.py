"""The demo's Airflow lets in who has its password, and only its own user of the machine can read that."""

from __future__ import annotations

import stat
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from urllib.error import HTTPError

import pytest

from tally.base.settings import settings
from tally.embedded import airflow, login
from tally.embedded.broker import down


@pytest.fixture(autouse=True)
def own_home(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TALLY_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("TALLY_AIRFLOW_PORT", raising=False)
    monkeypatch.delenv("AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_ALL_ADMINS", raising=False)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_the_password_is_made_once_and_nobody_else_can_read_it_or_what_stands_beside_it() -> None:
    run = settings()
    (run.home / "airflow").mkdir(parents=True, mode=0o755)
    login.close_off(run)
    made = login.password(run)
    assert len(made) >= 16
    assert (mode(login.password_file(run)), mode(run.home / "airflow")) == (0o600, 0o700)
    login.password_file(run).chmod(0o644)
    login.close_off(run)
    assert login.password(run) == made and mode(login.password_file(run)) == 0o600
    login.password_file(run).write_text("{")
    login.close_off(run)
    assert login.password(run) not in ("", made)


def test_its_environment_makes_nobody_an_admin_by_being_here(monkeypatch: pytest.MonkeyPatch) -> None:
    env = airflow.environment(settings(), 4242)
    assert env["AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_ALL_ADMINS"] == "False"
    assert env["AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_PASSWORDS_FILE"] == str(login.password_file(settings()))
    monkeypatch.setenv("AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_ALL_ADMINS", "True")
    assert airflow.environment(settings(), 4242)["AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_ALL_ADMINS"] == "True"


@pytest.fixture
def running() -> Iterator[airflow.Running]:
    try:
        yield airflow.start()
    finally:
        airflow.stop()
        down()  # the streams that it has started live on


def status(url: str, token: str = "") -> int:
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    try:
        with urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=30) as answer:
            return int(answer.status)
    except HTTPError as error:
        return error.code


def test_a_real_one_asks_for_it(running: airflow.Running) -> None:
    assert status(f"{running.url}/auth/token") == 403, "no token without a password"
    assert status(f"{running.url}/api/v2/pools") == 401
    assert status(f"{running.url}/api/v2/pools/{airflow.POOL}", airflow.token(running)) == 200, "and the pool is there"
    with pytest.raises(HTTPError, match="401"):
        airflow.request(f"{running.url}/auth/token", {"username": "admin", "password": "admin"}, "")
    assert login.password(settings()) not in airflow.log_path(settings()).read_text()

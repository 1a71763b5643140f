"""Who may use the embedded Airflow: one admin, whose password only this user of the machine can read.

Whoever reads Airflow's own folder (its secrets, its database) could be anybody in it, so all of that is this user's.
"""

from __future__ import annotations

import json
import os
import secrets
from pathlib import Path

from tally.base.settings import Settings
from tally.host import process

ADMIN = "admin"


def password_file(run: Settings) -> Path:
    """{"admin": password}, as Airflow's own simple auth manager reads it."""
    return run.home / "airflow" / "passwords.json"


def close_off(run: Settings) -> None:
    """Make the folder, and a password where there is none; nobody else may look into either."""
    file = password_file(run)
    file.parent.mkdir(parents=True, exist_ok=True)
    file.parent.chmod(0o700)
    if not process.read_json(file).get(ADMIN):
        file.unlink(missing_ok=True)
        with os.fdopen(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as out:
            out.write(json.dumps({ADMIN: secrets.token_urlsafe(12)}) + "\n")
    file.chmod(0o600)


def password(run: Settings) -> str:
    return str(process.read_json(password_file(run)).get(ADMIN, ""))


def environment(run: Settings) -> dict[str, str]:
    """What has Airflow ask for it."""
    return {
        "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_ALL_ADMINS": "False",
        "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_USERS": f"{ADMIN}:admin",
        "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_PASSWORDS_FILE": str(password_file(run)),
    }

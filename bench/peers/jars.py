"""Flink's jars, fetched and built when the bench is asked for them, as `make setup` fetches Spark's."""

from __future__ import annotations

import shutil
import subprocess
import time
from hashlib import sha256
from pathlib import Path

from tally.base.settings import settings

SOURCE = Path(__file__).parent / "flink"
TRIES = 3  # mirrors stumble


def flink() -> Path:
    """The folder with Flink, its connectors and what is built here; made anew when the pom or the code is another."""
    folder = settings().jars / "flink"
    files = [SOURCE / "pom.xml", *sorted(SOURCE.rglob("*.java"))]
    wanted = sha256(b"".join(file.read_bytes() for file in files)).hexdigest()
    done = folder / "done"
    if done.exists() and done.read_text() == wanted:
        return folder
    if not (shutil.which("mvn") and shutil.which("javac")):
        raise SystemExit("Flink is built here: needs mvn and javac (apt-get install maven openjdk-17-jdk-headless)")
    print(f"jars of {SOURCE / 'pom.xml'} to {folder}", flush=True)
    draft = folder.with_name("flink.new")
    shutil.rmtree(draft, ignore_errors=True)
    for number in range(TRIES):
        said = subprocess.run(
            ["mvn", "-q", "-B", "-f", str(SOURCE / "pom.xml"), "package", f"-Djars={draft}"],
            capture_output=True,
            text=True,
            check=False,
        )
        if said.returncode == 0:
            break
        time.sleep(5 * (number + 1))
    else:
        raise SystemExit(f"Maven cannot build Flink:\n{said.stdout}{said.stderr}")
    (draft / "target" / "flink-statements-1.jar").rename(draft / "flink-statements-1.jar")
    shutil.rmtree(draft / "target")
    (draft / "done").write_text(wanted)
    shutil.rmtree(folder, ignore_errors=True)
    draft.rename(folder)
    return folder

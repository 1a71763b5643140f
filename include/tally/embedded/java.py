"""Which Java runs here: JAVA_HOME's, or without that variable the one on the PATH."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

from tally.base.errors import TallyError

WANTED = 17


def java() -> str:
    """The path of the `java` command; a TallyError with the cure where there is none."""
    home = os.environ.get("JAVA_HOME")
    command = shutil.which(str(Path(home) / "bin" / "java") if home else "java")
    if command:
        return command
    if home:  # no falling back: Spark's launcher would not either
        raise TallyError(f"no Java in {home}", field="JAVA_HOME", cure="correct JAVA_HOME, or unset it")
    raise TallyError("no Java on this machine", field="java", cure=f"make setup (installs Java {WANTED})")


def java_version(command: str) -> int:
    """The major version that `java -version` reports; 0 when it does not run or says something else."""
    try:
        said = subprocess.run([command, "-version"], capture_output=True, text=True, timeout=30, check=False).stderr
    except (OSError, subprocess.TimeoutExpired):
        return 0
    found = re.search(r'version "(\d+)', said)
    return int(found[1]) if found else 0

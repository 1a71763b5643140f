"""What the embedded broker is started with: an id that its storage takes, and classes that are parsed already."""

from __future__ import annotations

import re
import socket
import subprocess
from base64 import urlsafe_b64decode
from pathlib import Path

import pytest

from tally.base.settings import Settings, settings
from tally.embedded.broker_files import broker_command, class_archive, free_port, new_cluster_id


def test_a_cluster_id_is_sixteen_bytes_and_looks_like_no_option() -> None:
    made = {new_cluster_id() for _ in range(2_000)}
    assert len(made) == 2_000
    assert all(re.fullmatch(r"\w[\w-]{21}", one) and len(urlsafe_b64decode(f"{one}==")) == 16 for one in made)


def test_the_archive_of_the_set_up_is_of_the_class_path_that_a_broker_has(home: Path, tmp_path: Path) -> None:
    """One that is not would be passed over in silence, and each start cost twice as much."""
    assert class_archive(settings()).exists(), "`make setup` makes it"
    *options, _, _ = broker_command(settings(), tmp_path)
    strict = [option for option in options if not option.startswith("-Xlog")]
    done = subprocess.run([*strict, "-Xshare:on", "-version"], capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr


def test_without_an_archive_a_broker_starts_all_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "kafka").mkdir()
    (tmp_path / "kafka" / "kafka_2.13-0.jar").touch()
    conf = Settings(jars=tmp_path, kafka_java_options="-Da=1 -Db=2")  # type: ignore[call-arg]
    command = broker_command(conf, tmp_path)
    assert not any("SharedArchive" in word for word in command)
    assert {"-Da=1", "-Db=2"} < set(command) and command[-2] == "kafka.Kafka"


def test_a_free_port_is_none_that_a_connection_may_take_before_it_is_used() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as connection:
        given = {server.getsockname()[1], connection.getsockname()[1]}
    found = {free_port() for _ in range(50)}
    assert len(found) > 40, "others who look at the same time find others"
    assert max(found) < min(given)

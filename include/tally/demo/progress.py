"""How far this home's producer came, so that the next one goes on with later ride ids and no id is used twice."""

from __future__ import annotations

import json
import time
from contextlib import suppress
from pathlib import Path

from tally.base.errors import TallyError
from tally.demo.events import Pending, Record
from tally.demo.rides import Waiting
from tally.host import lock
from tally.host.process import read_json, write_json

# Ids set aside before they are used: a producer that is killed skips at most so many, and writes the state this seldom.
RESERVE = 100_000
# Seconds between notes of the time reached; a killed producer's successor fills in so much again, under new ids.
NOTE_EVERY = 1.0


class Progress:
    """The state in <home>/produce, held by one producer at a time."""

    def __init__(self, folder: Path) -> None:
        self._state, self._pending = folder / "state.json", folder / "pending.json"
        try:
            self._held = lock.hold(folder / "lock")  # for as long as the producer runs
        except TallyError:
            raise TallyError(
                f"another producer runs for {folder.parent}", cure="stop it, or use a TALLY_HOME of its own"
            ) from None
        if self._state.exists() and not read_json(self._state):
            raise TallyError(f"{self._state} cannot be read", cure="restore it, or start in a fresh TALLY_HOME")
        state = read_json(self._state)
        self.next_id = int(state.get("next_ride_id", 1))
        self.last_ms: int | None = state.get("last_ms")
        self._reserved, self._noted = self.next_id, 0.0

    def note(self, next_id: int, last_ms: int | None) -> None:
        """Called before ids near `next_id` are sent, as often as one likes: keeps the state on disk ahead of them."""
        if next_id + RESERVE // 2 < self._reserved and time.monotonic() < self._noted + NOTE_EVERY:
            return
        if next_id + RESERVE // 2 >= self._reserved:
            self._reserved = next_id + RESERVE
        self._write(self._reserved, last_ms)

    def close(self, next_id: int, last_ms: int | None, pending: Pending[Waiting] | None) -> None:
        """A stop in good order: the exact id, and what still waits for its time."""
        if pending is not None:
            self._pending.write_text(json.dumps(pending.take_all()))
        self._write(next_id, last_ms)
        self.release()

    def release(self) -> None:
        """Let another producer in."""
        self._held.release()

    def take_pending(self, start_ms: int) -> Pending[Waiting]:
        """What the last producer left waiting, each to be sent once; what was due before `start_ms` is left out."""
        pending: Pending[Waiting] = Pending()
        with suppress(FileNotFoundError):
            for due, entry in json.loads(self._pending.read_text()):
                if due >= start_ms:
                    pending.add(due, Record(*entry) if len(entry) == len(Record._fields) else tuple(entry))
            self._pending.unlink()
        return pending

    def _write(self, next_id: int, last_ms: int | None) -> None:
        write_json(self._state, {"next_ride_id": next_id, "last_ms": last_ms})
        self._noted = time.monotonic()

"""What there is to see of an app's driver: its lock, its row in the control store, and what people want of its streams.

A look costs two small queries and a try of a lock: it may be had once a second for ever.
"""

from __future__ import annotations

from tally.control import streams
from tally.control.store import now_ms
from tally.supervise import launch, lock
from tally.supervise.policy import MOST_DELAY_MS, Seen

# A pod waits for a node, and for its image: its first word may take minutes.
ELSEWHERE_MS = 300_000


def look(app: str = launch.APP) -> Seen:
    """The app's driver as it is now; nothing is changed."""
    now, wishes, row = now_ms(), streams.wishes(), streams.driver(app)
    wanted = sum(wishes.get(name, {"state": "running"})["state"] == "running" for name in launch.pipelines())
    path = launch.lock_path(app)
    lives = lock.is_held(path)
    holder = lock.holder(path) if lives else None
    if row is None:
        return Seen(app=app, wanted=wanted, lives=lives, pid=holder.pid if holder else None)
    wait = int(row["retry_at"]) - now
    if launch.elsewhere():
        # Nothing of it can be seen from here but what it writes: a job that was handed over counts as alive until its
        # silence is too long, and is then ended before another is started.
        lives = bool(row["job"])
    starting = lives and not holder and not row["pid"] and now - int(row["launched_at"]) < ELSEWHERE_MS
    return Seen(
        app=app,
        wanted=wanted,
        lives=lives,
        pid=holder.pid if holder else int(row["pid"]) or None,
        uncounted=not lives and (int(row["pid"]) != 0 or bool(row["job"])),
        silent=0 if starting else now - int(row["heartbeat_at"]),
        age=now - int(row["launched_at"]),
        deaths=int(row["deaths"]),
        # By the wall clock, for it must outlive every process; one that was set back may not hold a stream for ever.
        retry_in=wait if wait <= MOST_DELAY_MS * 2 else 0,
        last_words=str(row["last_words"]),
    )

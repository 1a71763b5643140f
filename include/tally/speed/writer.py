"""The right to write a table: its kernel lock on this machine, and its lease where several machines could."""

from __future__ import annotations

from collections.abc import Callable

from sqlalchemy.exc import SQLAlchemyError

from tally.control import leases
from tally.host import lock


class Writer:
    """What a stream holds of a table: all of the right to write it, or nothing."""

    def __init__(self) -> None:
        self.held: lock.Lock | None = None
        self.lease: leases.Lease | None = None
        self.fenced = False  # a beat found that another has taken the table over

    def take(self, name: str, adopt: Callable[[lock.Lock], None]) -> None:
        """Become the one writer; where that is refused, or fails, nothing is held, and the error is raised."""
        try:
            self.held = lock.hold(lock.table_path(*name.split("/")))
            self.lease = leases.take(name)
            adopt(self.held)
        except Exception:
            self.release()  # all of it: half a writer would never write, and keep others from it
            raise

    def beat(self) -> None:
        """Say that the writer lives; one that another has replaced is to stop before it writes again."""
        lease = self.lease
        if lease is not None and not leases.beat(lease) and self.lease is lease:  # else it was let go of meanwhile
            self.fenced = True

    def replaced(self) -> bool:
        """Whether another has taken the lease; asking is a sign of life."""
        return self.lease is not None and not leases.beat(self.lease)

    def yield_to_other(self) -> None:
        """Let go of a table that another has taken over: the lease is theirs already."""
        self.lease, self.fenced = None, False
        self.release()

    def release(self) -> None:
        """Let go of the table, the lease first: nobody waits for one whose lock is free."""
        lease, self.lease = self.lease, None
        if lease is not None:
            try:
                leases.release(lease)
            except SQLAlchemyError:
                self.lease = lease  # it is still held: a later turn lets go of it
                raise
        if self.held is not None:
            self.held.release()
            self.held = None

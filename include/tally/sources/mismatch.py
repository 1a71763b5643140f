"""What an archive or a quarantine lost or gained, as a value."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Mismatch:
    """Offsets of a partition whose rows are not what the commit that wrote them said."""

    topic: str
    place: str  # archive | quarantine
    partition: int
    first: int
    to: int
    seq: int  # the ingest at fault
    lost: int  # rows too few; below 0: too many; 0: as many, and others

    def __str__(self) -> str:
        what = f"lost {self.lost}" if self.lost > 0 else f"{-self.lost} too many" if self.lost else "content differs"
        where = f"topic {self.topic}, partition {self.partition}, offsets [{self.first}, {self.to})"
        return f"{where}: {what} ({self.place}, ingest {self.seq})"

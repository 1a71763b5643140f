"""What the control store knows of archive commits, copied from their words: these are the truth."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from tally.base.errors import AnswerIsNo
from tally.catalog.spec import Topic
from tally.control import manifests, runs
from tally.lake import delta
from tally.sources import archive
from tally.sources.archive import PROGRESS, Ingest
from tally.sources.witnesses.manifest import Counted, Manifest

ALWAYS = (-(1 << 60), 1 << 60)


@dataclass(frozen=True, kw_only=True)
class Words:
    """What a commit of archive or quarantine says, as far as it is asked for."""

    kind: str
    version: int
    timestamp: int
    said: dict[str, Any] = field(repr=False)

    @property
    def place(self) -> tuple[int, int]:
        """Where it stands among all: later ones have a higher place."""
        return self.said["era"], self.said["seq"]

    @property
    def manifest(self) -> Manifest:
        return Manifest.from_words(self.said["manifest"])


def counts(counted: Counted) -> dict[str, Any]:
    """How many records of each ingest are where, for a commit's words."""
    quarantined = {reason: sorted(by.items()) for reason, by in counted.quarantined.items()}
    return {"counts": {"archived": sorted(counted.archived.items()), "quarantined": quarantined}}


def repair(topic: Topic, *, whole: bool = False) -> None:
    """Copy the commits that the control store lacks, for a crash may have come in between; `whole`: all of them."""
    newest = delta.newest(archive.path(topic), "ingest")
    if newest is None:
        return
    known = set() if whole else manifests.places(topic.name)
    missing: dict[tuple[int, int], Words] = {}
    for commit in words_in(archive.path(topic), PROGRESS):
        if commit.place in known:
            break
        missing[commit.place] = commit
    if missing:
        manifests.forget(topic.name, newest.words["since"])
    refused = dict[tuple[int, int], Words]()
    for commit in words_in(archive.quarantine_path(topic), ("quarantine", "redecode")) if missing else ():
        if commit.place < min(missing):
            break
        if commit.place in missing:
            refused.setdefault(commit.place, commit)
    for place in sorted(missing):
        record(topic, missing[place], refused.get(place))


def complete(topic: Topic, last: Ingest) -> None:
    """Have the control store know every commit of the archive's newest era, by the log where one is missing."""
    repair(topic)
    if not unbroken(topic, last):
        repair(topic, whole=True)


def check_last(topic: Topic, last: Ingest) -> None:
    """Refuse to go on from the last ingest's offsets where its commit and the control store's copy tell others.

    From false ones records would be left out, or taken twice, and nothing later would tell.
    """
    copied = [one for one in runs.ingest_history(topic.name) if one.seq == last.seq]
    for partition, told in copied[0].ranges.items() if copied else ():
        said = last.ranges.get(partition)
        if said != told:
            raise AnswerIsNo(
                f"ingest {last.seq} took topic {topic.name}, partition {partition}, offsets {said} by its commit's own "
                f"words, and {told} by the control store's copy of them",
                field=topic.name,
                cure="put back the one that was changed: the archive's log, or the control store",
            )


def unbroken(topic: Topic, last: Ingest) -> bool:
    """Whether each ingest up to the last is claimed by a commit, and each that refused records by quarantine too."""
    held = manifests.claims(topic.name, "archive", last.era, last.seq)
    seqs = [claim.seq for claim in held]
    if not seqs or seqs != list(range(seqs[0], last.seq + 1)) or held[0].baseline != (last.era > 0):
        return False
    if not set(seqs) <= {one.seq for one in runs.ingest_history(topic.name)}:
        return False
    known = {claim.seq for claim in manifests.claims(topic.name, "quarantine", last.era, last.seq)}
    refused = {one.seq for one in runs.ingest_history(topic.name) if one.quarantined and one.seq > seqs[0]}
    return refused <= known


def words_in(where: str, kinds: tuple[str, ...]) -> Iterator[Words]:
    """The words of these kinds in a table's log, newest first."""
    for commit in delta.commits(where):
        if commit.words.get("kind") in kinds:
            kind = str(commit.words["kind"])
            yield Words(kind=kind, version=commit.version, timestamp=commit.timestamp, said=commit.words)


def record(topic: Topic, commit: Words, refused: Words | None) -> None:
    """Write one commit of the archive, with the quarantine's beside it."""
    said = commit.said
    claims = [claim(topic, "archive", commit)]
    claims += [claim(topic, "quarantine", refused)] if refused is not None else []
    done = archive.from_words(topic.name, said, commit.version)
    row = {
        "topic": done.topic,
        "seq": done.seq,
        "ranges": done.ranges,
        "archived": done.archived,
        "quarantined": done.quarantined,
        "gaps": done.gaps,
        "delta_version": done.delta_version,
        "committed_at": commit.timestamp,
    }
    manifests.record(claims, [row] if commit.kind == "ingest" else [])
    if commit.kind == "redecode":
        archived = dict(map(tuple, said["counts"]["archived"]))
        quarantined: dict[int, dict[str, int]] = {}
        for reason, by in said["counts"]["quarantined"].items():
            for seq, number in by:
                quarantined.setdefault(seq, {})[reason] = number
        manifests.recount(topic.name, archived, quarantined, done.seq)


def claim(topic: Topic, place: str, commit: Words) -> dict[str, Any]:
    """The row of one table's commit."""
    start, end = commit.manifest.extent or ALWAYS
    era, seq = commit.place
    return {
        "topic": topic.name,
        "place": place,
        "era": era,
        "seq": seq,
        "baseline": commit.kind == "redecode",
        "contract": commit.said["contract"],
        "delta_version": commit.version,
        "from_ms": start,
        "to_ms": end,
        "body": commit.said["manifest"],
    }

"""Takes files that cannot be read out of a table's log: what they held is then lost rows, which a manifest tells.

A broken file stays beside the table as `….unreadable`, for as long as Delta keeps files that no version names.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable

from tally.base.failpoints import failpoint
from tally.catalog.spec import Topic
from tally.lake import delta
from tally.sources import archive

SUFFIX = ".unreadable"


def take_out(topic: Topic) -> list[str]:
    """Of archive and quarantine; the files, told as TABLE/TOPIC/FILE. The caller is the topic's one writer."""
    taken: list[str] = []
    for where in (archive.path(topic), archive.quarantine_path(topic)):
        table = delta.table(where)
        files = [] if table is None else broken(table)
        if table is None or not files:
            continue
        failpoint("mend.before_taking_out")
        words = delta.words("unreadable", topic=topic.name, files=files)
        table.repair(commit_properties=CommitProperties(custom_metadata={"userMetadata": words}))
        taken += [f"{'/'.join(where.split('/')[-2:])}/{file}" for file in files]
    return taken


def broken(table: DeltaTable) -> Sequence[str]:
    """The files that are gone or cannot be read to their end; the latter are put aside, so that they are gone too."""
    rows = table.to_pyarrow_dataset()
    found = []
    for file in rows.get_fragments():
        try:
            for _ in file.to_batches():
                pass
        except FileNotFoundError:
            found.append(file.path)
        except (OSError, pa.ArrowException):
            rows.filesystem.move(file.path, f"{file.path}{SUFFIX}")
            found.append(file.path)
    return found

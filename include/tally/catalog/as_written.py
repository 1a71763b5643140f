"""Imports files of a catalogue from their text, never from bytecode that an earlier text of theirs may have left.

Python takes a `.pyc` for its file's when time stamp (whole seconds) and size are the same. A catalogue that was copied
with its time stamps, or edited twice in a second, would then run other code than its version was made from.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.machinery import SOURCE_SUFFIXES, FileFinder, SourceFileLoader
from pathlib import Path
from types import CodeType


class AsWritten(SourceFileLoader):
    """Loads a module from its source, and leaves nothing for later."""

    def get_code(self, fullname: str) -> CodeType:
        path = self.get_filename(fullname)
        return self.source_to_code(self.get_data(path), path)


@contextmanager
def importable(folder: Path) -> Iterator[None]:
    """A folder at the head of what can be imported, as written; files of packages within it too."""

    def within(path: str) -> FileFinder:
        if not Path(path).is_relative_to(folder):
            raise ImportError(path)
        return FileFinder(path, (AsWritten, SOURCE_SUFFIXES))

    def forget() -> None:
        for path in list(sys.path_importer_cache):  # another thread may import meanwhile
            if Path(path).is_relative_to(folder):
                sys.path_importer_cache.pop(path, None)

    forget()  # also what a finder remembers of a folder's files
    sys.path.insert(0, str(folder))
    sys.path_hooks.insert(0, within)
    try:
        yield
    finally:
        sys.path_hooks.remove(within)
        sys.path.remove(str(folder))
        forget()

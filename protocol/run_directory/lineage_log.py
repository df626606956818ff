"""lineage.jsonl: every version of a run's weights, durable before an engine can sample with it.

A checkpoint knows the versions up to its step.  After a resume from it, the journal may hold tokens of later versions,
and only this file tells their staleness.
"""

from __future__ import annotations

from pathlib import Path

import msgspec
import orjson

from protocol.files.filesystem import append_atomically, cut_torn_line, fsync_path
from protocol.run_directory.file_tail import decode_lines
from protocol.run_directory.layout import LINEAGE_FILE
from protocol.weights import Lineage, LineageEntry

_ENTRY = msgspec.json.Decoder(LineageEntry)


class LineageLog:
    """Appends to and reads the lineage file of one run."""

    def __init__(self, run_dir: Path) -> None:
        self._path = run_dir / LINEAGE_FILE
        self._checked = False
        """True once an incomplete last line would be removed."""

    def append(self, entry: LineageEntry) -> None:
        """Append and flush to disk.  One writer at a time."""
        if not self._checked:
            cut_torn_line(self._path)
            self._checked = True
        line = {"version": entry.version, "step": entry.step, "parent": entry.parent}
        append_atomically(self._path, orjson.dumps(line) + b"\n")
        fsync_path(self._path)

    def size(self) -> int:
        """Return the file's size in bytes; 0 before its first line."""
        return self._path.stat().st_size if self._path.exists() else 0

    def read(self) -> Lineage:
        """Return all versions of all starts; an incomplete line, which no engine has used, is skipped."""
        lineage = Lineage()
        for entry in decode_lines(_ENTRY, self._path):
            lineage.entries[entry.version] = entry
        return lineage

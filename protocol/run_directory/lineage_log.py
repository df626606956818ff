"""lineage.jsonl: every version of a run's weights, durable before an engine can sample with it.

A checkpoint knows the versions up to its step.  Tokens of later ones wait in the journal when a run is resumed from it,
and only this file says how old they are.
"""

from __future__ import annotations

from pathlib import Path

import orjson

from protocol.files.filesystem import append_atomically, cut_torn_line, fsync_path
from protocol.weights import Lineage, LineageEntry, WeightVersion


class LineageLog:
    def __init__(self, run_dir: Path) -> None:
        self._path = run_dir / "lineage.jsonl"
        self._whole = False
        """The last line is known to be."""

    def append(self, entry: LineageEntry) -> None:
        """Append and flush to disk.  One writer at a time."""
        if not self._whole:
            cut_torn_line(self._path)
            self._whole = True
        line = {"version": entry.version, "step": entry.step, "parent": entry.parent}
        append_atomically(self._path, orjson.dumps(line) + b"\n")
        fsync_path(self._path)

    def read(self) -> Lineage:
        """All versions of all attempts; a torn line, which nobody has sampled with, is passed over."""
        lineage = Lineage()
        for raw in self._path.read_bytes().splitlines() if self._path.exists() else []:
            try:
                line = orjson.loads(raw)
            except orjson.JSONDecodeError:
                continue
            lineage.entries[line["version"]] = LineageEntry(
                WeightVersion(line["version"]), line["step"], line["parent"]
            )
        return lineage

"""Telemetry: what happened, for people and readers, never for a decision.

Each process appends JSON lines to its own file ``events/<writer>.jsonl`` in the run directory, one ``write`` a line, so
that readers can tail it.  A line is ``{"t": unix seconds, "kind": str, "node": str, "writer": str, "seq": int, ...}``.
Writing never raises and never blocks on a reader; what could not be written is counted in ``dropped``.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

import orjson

from protocol.filesystem import write_whole

Json: TypeAlias = "str | int | float | bool | list[Json] | dict[str, Json] | None"


class EventLog:
    """Appends events of one process to one file."""

    def __init__(self, run_dir: Path, writer: str, node: str, now: Callable[[], float] = time.time) -> None:
        self.writer, self.node, self.dropped = writer, node, 0
        self._now, self._seq = now, 0
        folder = run_dir / "events"
        folder.mkdir(parents=True, exist_ok=True)
        self._fd = os.open(folder / f"{writer}.jsonl", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)

    def emit(self, kind: str, **fields: Json) -> None:
        """Append one event; a failure (disk full, say) is counted, not raised."""
        head: dict[str, Json] = {
            "t": round(self._now(), 3),
            "kind": kind,
            "node": self.node,
            "writer": self.writer,
            "seq": self._seq,
        }
        self._seq += 1
        try:
            write_whole(self._fd, orjson.dumps(head | fields) + b"\n")
        except OSError:
            self.dropped += 1

    def close(self) -> None:
        os.close(self._fd)

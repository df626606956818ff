"""What an engine says while it builds, pulls or loads an image: the step, the bytes fetched, the last lines.  Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeAlias

from protocol.cli.formatting import one_line, truncate_text
from protocol.truncation import HeadTailBuffer, strip_escapes

_LOG_BYTES = 2000
_INSTRUCTION_CHARACTERS = 160
_STEP = re.compile(r"step (\d+)/(\d+) ?: (.*)", re.IGNORECASE | re.DOTALL)
_NOISE = re.compile(r" ---> .*\n?|(?:Removing|Removed) intermediate container \w+\n?")
"""What the engine's builder says of itself between the lines of a step."""


class ImageProgress(NamedTuple):
    """How far the engine is with one image."""

    step: str = ""
    """Step of the Dockerfile, as ``step 3/7: RUN make``; empty before the first, and for a pull."""
    fetched_bytes: int = 0
    """Bytes of layers that came from registries."""


NO_PROGRESS = ImageProgress()
ReportProgress: TypeAlias = Callable[[ImageProgress], None]


def ignore_progress(progress: ImageProgress) -> None:
    """Receive progress that nobody looks at."""
    del progress


@dataclass(slots=True)
class EngineLog:
    """Reads the entries of an engine's answer."""

    report: ReportProgress = ignore_progress
    trouble: str = ""
    """What went wrong before, which may be the reason for an error."""
    text: HeadTailBuffer = field(default_factory=lambda: HeadTailBuffer(0, _LOG_BYTES))
    """The last lines, of a build those of its step."""
    _progress: ImageProgress = NO_PROGRESS
    _layers: dict[str, int] = field(default_factory=dict[str, int])

    def feed(self, entry: Mapping[str, Any]) -> None:
        """Read an entry that is no error."""
        said = str(entry.get("stream", ""))
        if found := _STEP.match(said):
            instruction = truncate_text(one_line(found[3]), _INSTRUCTION_CHARACTERS)
            self._move(self._progress._replace(step=f"step {found[1]}/{found[2]}: {instruction}"))
            self.text = HeadTailBuffer(0, _LOG_BYTES)
        elif not _NOISE.fullmatch(said):
            self.text.feed(strip_escapes(said).encode())
        if entry.get("status") == "Downloading":
            detail: Mapping[str, int] = entry.get("progressDetail") or {}
            self._layers[str(entry.get("id"))] = detail.get("current", 0)
            self._move(self._progress._replace(fetched_bytes=sum(self._layers.values())))

    def describe_error(self, error: str) -> str:
        """Return the engine's error with the step that failed and its last lines."""
        at = f"{self._progress.step}\n" if self._progress.step else ""
        return "\n".join(filter(None, (f"{at}{error}", self.text.text().strip(), self.trouble)))

    def _move(self, progress: ImageProgress) -> None:
        self._progress = progress
        self.report(progress)

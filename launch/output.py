"""What a command prints: one JSON object on standard output, everything else on standard error.

With ``--json`` a command's standard output is exactly one object, the last thing it does, whatever its libraries and
child processes print: file descriptor 1 is a copy of standard error from the beginning to the end of the process.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from types import TracebackType
from typing import Self

import orjson
from rich.console import Console

from launch.errors import EXIT_FAILED, describe
from protocol.events import Json


def error_console() -> Console:
    """For tables and progress: standard error, plain lines where it is not a terminal."""
    return Console(stderr=True, soft_wrap=True)


class JsonOutput:
    """``with JsonOutput(args.json) as out: …; out.set({...})`` prints the object on leaving, if ``enabled``.

    When the body raises, the object is ``{"error": line, "exit_code": n}`` and the error goes on.
    """

    def __init__(self, enabled: bool) -> None:
        self.enabled = enabled
        self._value: Mapping[str, Json] = {}
        self._stdout = -1

    def set(self, value: Mapping[str, Json]) -> None:
        """The object to print; the last one counts."""
        self._value = value

    def __enter__(self) -> Self:
        if self.enabled:
            sys.stdout.flush()
            self._stdout = os.dup(1)
            os.dup2(2, 1)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if not self.enabled:
            return
        if error is not None:
            code, line = describe(error) or (EXIT_FAILED, f"error: {type(error).__name__}: {error}")
            self._value = {"error": line.removeprefix("error: "), "exit_code": code}
        with os.fdopen(self._stdout, "wb") as stdout:
            stdout.write(orjson.dumps(dict(self._value), option=orjson.OPT_APPEND_NEWLINE))

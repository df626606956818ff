"""Consoles of a command, and its ``--json`` object.

With ``--json`` standard output is exactly one object, written last, whatever libraries and child processes print: file
descriptor 1 is a copy of standard error for the life of the process.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import ClassVar, NoReturn, Self

import orjson
from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment

from protocol.cli.exit_codes import EXIT_FAILED, OutputClosedError, OutputFailedError, describe_error, output_errors
from protocol.plain_text import escape_controls, sanitize_text


def output_console() -> Console:
    """Return the console for a command's results: standard output, in plain lines when it is not a terminal.

    With ``--json`` it is standard error.  Brackets and words between colons in printed text are text.
    """
    if JsonOutput.is_open():
        return error_console()
    return _OutputConsole(file=sys.stdout, soft_wrap=True, markup=False, emoji=False, highlight=False)


class _PlainTextConsole(Console):
    """Prints text of tasks, models and peers as text: of their escape sequences and control characters none reaches the
    terminal, only those of Rich's styles and cursor."""

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        for segment in super().render(renderable, options):
            yield segment if segment.control else Segment(sanitize_text(segment.text), segment.style)


class _OutputConsole(_PlainTextConsole):
    def on_broken_pipe(self) -> None:
        raise OutputClosedError

    def _write_buffer(self) -> None:
        with output_errors():
            super()._write_buffer()


def error_console() -> Console:
    """Return the console for progress and errors: standard error, in plain lines when it is not a terminal.

    Brackets and words between colons in printed text are text.
    """
    return _ErrorConsole(stderr=True, soft_wrap=True, markup=False, emoji=False, highlight=False)


class _ErrorConsole(_PlainTextConsole):
    def on_broken_pipe(self) -> None:
        """Keep working silently after the reader has gone (``| head``, a closed window)."""
        self.quiet = True


def display_path(path: Path) -> Path:
    """Return ``path`` relative to the working directory if it is inside."""
    here = Path.cwd()
    return path.relative_to(here) if path.is_relative_to(here) else path


def align_columns(rows: Sequence[Sequence[str]], *, text_columns: int = 1) -> list[str]:
    """Return rows as lines of aligned columns: the first ``text_columns`` to the left, numbers to the right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(
            cell.ljust(width) if number < text_columns else cell.rjust(width)
            for number, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]


class JsonOutput:
    """Context manager that prints the object given to :meth:`set_result` on leaving, if ``enabled``.

    When the body raises, the object is ``{"error": line, "exit_code": n}`` and the error propagates.  On SystemExit
    (``--help``) nothing is printed.
    """

    _open: ClassVar[JsonOutput | None] = None

    def __init__(self, enabled: bool) -> None:
        self.enabled = enabled
        self._value: Mapping[str, object] = {}
        self._stdout = -1

    @classmethod
    def is_open(cls) -> bool:
        """Return whether standard output is reserved for the object."""
        return cls._open is not None

    def set_result(self, value: Mapping[str, object]) -> None:
        """Set the object to print, of types that orjson can write; the last call wins.  It is indented on a
        terminal."""
        self._value = value

    def __enter__(self) -> Self:
        if self.enabled:
            sys.stdout.flush()
            self._stdout = os.dup(1)
            os.dup2(2, 1)
            JsonOutput._open = self
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if not self.enabled:
            return
        JsonOutput._open = None
        if isinstance(error, SystemExit):
            os.close(self._stdout)
            return
        if error is not None:
            code, line = describe_error(error) or (EXIT_FAILED, f"error: {type(error).__name__}: {error}")
            self.print_failure(code, line)
        else:
            self._print()

    @classmethod
    def end_process(cls, code: int, line: str) -> NoReturn:
        """End the process at once; the only clean-up is the pending object and the terminal's cursor."""
        try:
            error_console().show_cursor()
            if cls._open is not None:
                cls._open.print_failure(code, line)
        finally:
            os._exit(code)

    def print_failure(self, code: int, line: str) -> None:
        """Print the object of a command that failed."""
        self._value = {"error": line.removeprefix("error: "), "exit_code": code}
        with suppress(OutputClosedError, OutputFailedError):
            self._print()

    def _print(self) -> None:
        with output_errors(), os.fdopen(self._stdout, "wb") as stdout:
            try:
                line = orjson.dumps(dict(self._value), option=orjson.OPT_INDENT_2 if stdout.isatty() else None)
            except TypeError:  # an integer beyond 64 bits
                line = json.dumps(dict(self._value)).encode()
            stdout.write(escape_controls(line.decode()).encode() + b"\n")

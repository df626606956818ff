"""What a command prints: one JSON object on standard output, everything else on standard error.

With ``--json`` a command's standard output is exactly one object, the last thing it does, whatever its libraries and
child processes print: file descriptor 1 is a copy of standard error from the beginning to the end of the process.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Generator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import ClassVar, NoReturn, Self

import orjson
from rich.console import Console

from protocol.cli.exit_codes import EXIT_FAILED, OutputClosedError, describe_error


def output_console() -> Console:
    """Return the console of what was asked for: standard output, plain lines where it is no terminal.  With ``--json``
    it is standard error.  What is printed is text, whatever brackets are in it."""
    if JsonOutput.is_open():
        return error_console()
    return _OutputConsole(file=sys.stdout, soft_wrap=True, markup=False, highlight=False)


class _OutputConsole(Console):
    def on_broken_pipe(self) -> None:
        raise OutputClosedError


def error_console() -> Console:
    """Return the console of progress and errors: standard error, plain lines where it is no terminal.  What is printed
    is text, whatever brackets are in it."""
    return _ErrorConsole(stderr=True, soft_wrap=True, markup=False, highlight=False)


class _ErrorConsole(Console):
    def on_broken_pipe(self) -> None:
        """Nobody reads what is printed (``| head``, a closed window): the work goes on without."""
        self.quiet = True


def display_path(path: Path) -> Path:
    """``path`` as a person would type it here."""
    here = Path.cwd()
    return path.relative_to(here) if path.is_relative_to(here) else path


class JsonOutput:
    """``with JsonOutput(enabled) as out: …; out.set_result({...})`` prints the object on leaving, if ``enabled``.

    When the body raises, the object is ``{"error": line, "exit_code": n}`` and the error goes on.  When it exits, as
    ``--help`` does, there is none.
    """

    _open: ClassVar[JsonOutput | None] = None

    def __init__(self, enabled: bool) -> None:
        self.enabled = enabled
        self._value: Mapping[str, object] = {}
        self._stdout = -1

    @classmethod
    def is_open(cls) -> bool:
        """Return whether standard output is kept for the object."""
        return cls._open is not None

    def set_result(self, value: Mapping[str, object]) -> None:
        """The object to print, of what orjson can write; the last one counts.  On a terminal it takes several lines."""
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
        """End the process at once, without any clean-up but the object that is due and the terminal's cursor."""
        try:
            error_console().show_cursor()
            if cls._open is not None:
                cls._open.print_failure(code, line)
        finally:
            os._exit(code)

    def print_failure(self, code: int, line: str) -> None:
        """Print the object of a command that failed."""
        self._value = {"error": line.removeprefix("error: "), "exit_code": code}
        with suppress(OutputClosedError):
            self._print()

    def _print(self) -> None:
        with _read_by_somebody(), os.fdopen(self._stdout, "wb") as stdout:
            try:
                line = orjson.dumps(dict(self._value), option=orjson.OPT_INDENT_2 if stdout.isatty() else None)
            except TypeError:  # a whole number beyond 64 bits
                line = json.dumps(dict(self._value)).encode()
            stdout.write(line + b"\n")


@contextmanager
def _read_by_somebody() -> Generator[None]:
    """Raises Unread for a pipe that nobody reads."""
    try:
        yield
    except BrokenPipeError as error:
        raise OutputClosedError from error

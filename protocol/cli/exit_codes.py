"""End of a command: one line for a person and an exit code for a script.

0: success, and all of the command's own checks passed.  1: failure.  2: the user can fix it (the line says how).  130:
interrupted by Ctrl-C or SIGTERM; both stop the child processes and remove temporary files.  141, without a line:
standard output was closed (``| head``).

Unexpected errors keep their traceback.
"""

from __future__ import annotations

import contextlib
import io
import os
import select
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Generator
from pathlib import Path
from types import FrameType, TracebackType
from typing import cast

from protocol.dependencies import EXIT_USER
from protocol.errors import LongshoreError, UserError, iterate_leaf_errors
from protocol.plain_text import sanitize_text

EXIT_OK = 0
EXIT_FAILED = 1
EXIT_INTERRUPTED = 130
EXIT_OUTPUT_CLOSED = 141
_PRINTED_TO = (1, 2)


class OutputClosedError(BrokenPipeError):
    """The reader of a command's standard output has gone."""


class OutputFailedError(UserError):
    """A command's standard output cannot be written, for example because the disk is full."""

    def __init__(self, error: OSError) -> None:
        super().__init__(f"standard output cannot be written: {error.strerror}")


@contextlib.contextmanager
def output_errors() -> Generator[None]:
    """Raise OutputClosedError or OutputFailedError instead of OSError."""
    try:
        yield
    except BrokenPipeError as error:
        raise OutputClosedError from error
    except OSError as error:
        raise OutputFailedError(error) from error


def main_guard(main: Callable[[], int | None]) -> int:
    """Run ``main`` and return its exit code, or that of the error that ended it: ``sys.exit(main_guard(main))``."""
    _replace_unprintable()
    sys.excepthook = _print_traceback
    try:
        with _sigterm_as_interrupt(), _flushed_output():
            return main() or EXIT_OK
    except BaseException as error:
        outcome = describe_error(error)
        if outcome is None:
            raise
        code, line = outcome
        with contextlib.suppress(OSError):  # the reader may be gone
            if code != EXIT_OUTPUT_CLOSED:
                print(sanitize_text(line), file=sys.stderr)  # noqa: T201  the one place that writes a command's final line
        _discard_unread_output(failed=isinstance(error, OutputFailedError))
        return code


def _print_traceback(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    """Print an unexpected error as Python does, but as text: its message may quote an agent, a task or a peer."""
    text = "".join(traceback.format_exception(kind, error, trace))
    with contextlib.suppress(OSError):  # the reader may be gone
        print(sanitize_text(text), end="", file=sys.stderr)  # noqa: T201  in place of Python's own hook


def _replace_unprintable() -> None:
    """Print escapes for characters that the terminal's encoding lacks, as standard error does by default."""
    stdout = cast("io.TextIOWrapper | None", sys.stdout)
    if isinstance(stdout, io.TextIOWrapper):
        stdout.reconfigure(errors="backslashreplace")


@contextlib.contextmanager
def _flushed_output() -> Generator[None]:
    """Flush standard output at the end.  Raises BrokenPipeError if its reader has gone."""
    try:
        yield
    except SystemExit:
        _flush()
        raise
    _flush()


def _flush() -> None:
    if sys.__stdout__ is not None:
        with output_errors():
            sys.__stdout__.flush()


def _discard_unread_output(*, failed: bool) -> None:
    """Drop buffered output that nobody can read, or standard output that has failed: Python would report it as an error
    at exit."""
    with Path(os.devnull).open("wb") as nowhere:
        for descriptor in _PRINTED_TO:
            if _is_unread(descriptor) or (failed and descriptor == _PRINTED_TO[0]):
                os.dup2(nowhere.fileno(), descriptor)


def _is_unread(descriptor: int) -> bool:
    """Return whether a descriptor is a pipe or a socket with a closed other end."""
    poll = select.poll()
    poll.register(descriptor, 0)
    return any(seen & (select.POLLERR | select.POLLHUP) for _, seen in poll.poll(0))


@contextlib.contextmanager
def _sigterm_as_interrupt() -> Generator[None]:
    """Treat SIGTERM as an interrupt unless another handler is installed."""
    ours = threading.current_thread() is threading.main_thread() and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    if not ours:
        yield
        return
    signal.signal(signal.SIGTERM, _interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


def _interrupt(number: int, frame: FrameType | None) -> None:
    """Interrupt like Ctrl-C, also in a background job, where the shell ignores SIGINT."""
    del number, frame
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        raise KeyboardInterrupt
    signal.raise_signal(signal.SIGINT)


def _is_closed_output(error: BaseException) -> bool:
    return isinstance(error, OutputClosedError) or (
        isinstance(error, BrokenPipeError) and any(map(_is_unread, _PRINTED_TO))
    )


def describe_error(error: BaseException) -> tuple[int, str] | None:
    """Return the exit code and the line for an expected error; None for any other.

    A TaskGroup raises groups: in one, an interrupt takes precedence, then an error that the user can fix.  A group with
    an unexpected error is unexpected.
    """
    found = list(iterate_leaf_errors(error))
    if any(isinstance(leaf, KeyboardInterrupt) for leaf in found):
        return EXIT_INTERRUPTED, "interrupted"
    if all(map(_is_closed_output, found)):
        return EXIT_OUTPUT_CLOSED, "error: standard output was closed"
    for leaf in found:
        if isinstance(leaf, UserError):
            return EXIT_USER, f"error: {leaf}"
    expected = [leaf for leaf in found if isinstance(leaf, LongshoreError)]
    if expected and len(expected) == len(found):
        return EXIT_FAILED, f"error: {expected[0]}"
    return None

"""How a command of ours ends: one line for a person and an exit code for a script.

0: done and its own checks held.  1: it failed.  2: the person can mend it (the line says how).  130: interrupted, by
Ctrl-C or by SIGTERM, which end a command alike: what it started ends with it, and its temporary files go.  141, and no
line: nobody reads what it prints any more (``| head``).
An error that nobody raised on purpose keeps its traceback.
"""

from __future__ import annotations

import contextlib
import io
import os
import select
import signal
import sys
import threading
from collections.abc import Callable, Generator
from pathlib import Path
from types import FrameType
from typing import cast

from protocol.errors import LongshoreError, UserError, iterate_leaf_errors

EXIT_OK = 0
EXIT_FAILED = 1
EXIT_USER = 2
EXIT_INTERRUPTED = 130
EXIT_OUTPUT_CLOSED = 141
_PRINTED_TO = (1, 2)


class OutputClosedError(BrokenPipeError):
    """Nobody reads a command's standard output any more."""


def main_guard(main: Callable[[], int | None]) -> int:
    """Run ``main`` and give its exit code, or that of the error that ended it: ``sys.exit(main_guard(main))``."""
    _replace_unprintable()
    try:
        with _terminable(), _printed():
            return main() or EXIT_OK
    except BaseException as error:
        outcome = describe_error(error)
        if outcome is None:
            raise
        code, line = outcome
        with contextlib.suppress(OSError):  # nobody may read it any more
            if code != EXIT_OUTPUT_CLOSED:
                print(line, file=sys.stderr)  # noqa: T201  the one place where a command's last line is written
        _discard_unread_output()
        return code


def _replace_unprintable() -> None:
    """Print an escape for a character that the terminal's encoding lacks, as standard error does anyway."""
    stdout = cast("io.TextIOWrapper | None", sys.stdout)
    if isinstance(stdout, io.TextIOWrapper):
        stdout.reconfigure(errors="backslashreplace")


@contextlib.contextmanager
def _printed() -> Generator[None]:
    """A command that succeeds, or that exits by itself, has printed all: else BrokenPipeError."""
    try:
        yield
    except SystemExit:
        _flush()
        raise
    _flush()


def _flush() -> None:
    if sys.__stdout__ is not None:
        sys.__stdout__.flush()


def _discard_unread_output() -> None:
    """What is still to be printed where nobody reads is lost: Python would complain of it as it ends."""
    with Path(os.devnull).open("wb") as nowhere:
        for descriptor in filter(_is_unread, _PRINTED_TO):
            os.dup2(nowhere.fileno(), descriptor)


def _is_unread(descriptor: int) -> bool:
    """Whether it is a pipe or a socket whose other end is closed."""
    poll = select.poll()
    poll.register(descriptor, 0)
    return any(seen & (select.POLLERR | select.POLLHUP) for _, seen in poll.poll(0))


@contextlib.contextmanager
def _terminable() -> Generator[None]:
    """SIGTERM is an interrupt, where nobody has said what else it should be."""
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
    """As Ctrl-C does, also in a background job, which a shell makes deaf to that."""
    del number, frame
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        raise KeyboardInterrupt
    signal.raise_signal(signal.SIGINT)


def _is_of_a_reader_gone(error: BaseException) -> bool:
    return isinstance(error, OutputClosedError) or (
        isinstance(error, BrokenPipeError) and any(map(_is_unread, _PRINTED_TO))
    )


def describe_error(error: BaseException) -> tuple[int, str] | None:
    """Exit code and line for an error that was raised on purpose; None for any other.

    A TaskGroup raises groups: an interrupt in one comes first, then what the person can mend.  A group that holds an
    unexpected error is unexpected.
    """
    found = list(iterate_leaf_errors(error))
    if any(isinstance(leaf, KeyboardInterrupt) for leaf in found):
        return EXIT_INTERRUPTED, "interrupted"
    if all(map(_is_of_a_reader_gone, found)):
        return EXIT_OUTPUT_CLOSED, "error: nobody reads what it prints"
    for leaf in found:
        if isinstance(leaf, UserError):
            return EXIT_USER, f"error: {leaf}"
    expected = [leaf for leaf in found if isinstance(leaf, LongshoreError)]
    if expected and len(expected) == len(found):
        return EXIT_FAILED, f"error: {expected[0]}"
    return None

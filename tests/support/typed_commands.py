"""Commands of the documentation as a reader types them, in a folder that has the files that the pages show."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from protocol.run_directory.run_tail import read_events
from tests.support.documented_commands import ROOT, DocumentedCommand, read_files
from tests.support.runs.cluster_runs import PATIENCE_S, Event, eventually

_EPISODE_S = 1500.0
"""For the first episodes of a run: with the start of its engine."""


def lay_out(page: Path, folder: Path) -> None:
    """Write the files that a page shows whole."""
    for path, text in read_files(page).items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text)


def command_line(
    command: DocumentedCommand, placeholders: Mapping[str, str] | None = None, added: Sequence[str] = ()
) -> list[str]:
    """Return what runs a command by this interpreter, with its placeholders replaced and words that this machine needs.

    Raises AssertionError for a placeholder that the command does not have."""
    words = ["-m", command.module, *command.arguments] if command.module else list(command.words[1:])
    for old, new in (placeholders or {}).items():
        assert any(old in word for word in words), f"{command} has no {old}"
        words = [word.replace(old, new) for word in words]
    return [sys.executable, *words, *added]


def reader_environment(variables: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return the environment in which this checkout is the installed longshore."""
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    return os.environ | {"PYTHONPATH": path} | (dict(variables) if variables else {})


def type_in(
    command: DocumentedCommand,
    folder: Path,
    placeholders: Mapping[str, str] | None = None,
    variables: Mapping[str, str] | None = None,
    codes: frozenset[int] = frozenset({0}),
    added: Sequence[str] = (),
) -> subprocess.CompletedProcess[str]:
    """Run a command in ``folder``.  Raises AssertionError for an exit code that is not of ``codes``."""
    done = subprocess.run(
        command_line(command, placeholders, added),
        cwd=folder,
        env=reader_environment(variables),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode in codes, f"{command}\n{done.stdout}\n{done.stderr}"
    assert "Traceback" not in done.stderr
    return done


class ReaderRun:
    """A run that a reader has started: ``longshore cluster`` in a folder, whose name longshore chooses."""

    def __init__(self, line: Sequence[str], folder: Path, environment: Mapping[str, str]) -> None:
        self._folder, self._stderr = folder, folder / "stderr.txt"
        with self._stderr.open("wb") as stderr:
            self.process = subprocess.Popen(
                line,
                cwd=folder,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=stderr,
                start_new_session=True,
            )

    @property
    def stderr(self) -> str:
        return self._stderr.read_text(errors="replace")

    def wait_event(self, kind: str, holds: Callable[[Event], bool]) -> Event:
        """Return the first event of ``kind`` for which ``holds``.  Raises AssertionError if the run ends without it."""

        def look() -> Event | None:
            ended = self.process.poll() is not None
            runs = [path.parent for path in (self._folder / "runs").glob("*/events")]
            found = [each for run in runs for each in read_events(run) if each["kind"] == kind]
            fitting = [each for each in found if holds(each)]
            assert fitting or not ended, f"the run ended without {kind} of that kind: {found}\n{self.stderr[-4000:]}"
            return fitting[0] if fitting else None

        return eventually(kind, look, _EPISODE_S)

    def interrupt(self) -> int:
        """Press Ctrl-C and return the exit code."""
        os.killpg(self.process.pid, signal.SIGINT)
        return self.process.wait(PATIENCE_S)


@contextmanager
def start_typing(
    command: DocumentedCommand,
    folder: Path,
    placeholders: Mapping[str, str] | None = None,
    variables: Mapping[str, str] | None = None,
    added: Sequence[str] = (),
) -> Generator[ReaderRun]:
    """Start a command that trains for long, and end it with the block."""
    run = ReaderRun(command_line(command, placeholders, added), folder, reader_environment(variables))
    try:
        yield run
    finally:
        if run.process.poll() is None:
            run.process.terminate()
            run.process.wait(PATIENCE_S)

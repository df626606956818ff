"""Mini runs as a user starts them: ``longshore cluster`` in a process of its own.

All runs of a test session share one folder of runs, so the first trains the warm start and the others find it there.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from launch.processes.process_reaper import RUN_TOKEN_VARIABLE, find_run_processes
from protocol.run_directory.run_tail import read_events
from sandbox.docker.labels import RUN_LABEL
from sandbox.host_record import docker_url

ROOT = Path(__file__).resolve().parents[3]
RECIPE = Path(__file__).with_name("mini.toml")
CLUSTER = "launch.cluster"
PATIENCE_S = 600.0
"""For anything that a run does; generous, because tests share machines with other work."""

Event = dict[str, Any]


def eventually(what: str, condition: Callable[[], Any], within_s: float = PATIENCE_S) -> Any:
    """The first true value of ``condition``."""
    give_up = time.monotonic() + within_s
    while not (found := condition()):
        assert time.monotonic() < give_up, f"not within {within_s:g} s: {what}"
        time.sleep(0.4)
    return found


@dataclass(frozen=True, slots=True)
class FinishedRun:
    exit_code: int
    stdout: str
    stderr: str

    @property
    def json(self) -> dict[str, Any]:
        """The one object on standard output."""
        lines = self.stdout.splitlines()
        assert len(lines) == 1, f"standard output is not one object: {self.stdout!r}"
        return json.loads(lines[0])


class MiniRun:
    """One started command.  ``path`` is its run directory."""

    def __init__(self, path: Path, command: list[str], logs: Path, env: Mapping[str, str] | None = None) -> None:
        self.path = path
        self._out, self._err = logs / f"{path.name}.out", logs / f"{path.name}.err"
        with self._out.open("wb") as out, self._err.open("wb") as err:
            self.process = subprocess.Popen(
                command, cwd=ROOT, stdout=out, stderr=err, stdin=subprocess.DEVNULL, env=env, start_new_session=True
            )

    # -- what it says ----------------------------------------------------------------------------------------------

    @property
    def stderr(self) -> str:
        return self._err.read_text(errors="replace")

    def events(self, *kinds: str) -> list[Event]:
        """Return events in the order of time; all of them when no kind is given."""
        found = [event for event in read_events(self.path) if not kinds or event["kind"] in kinds]
        return sorted(found, key=lambda event: event["t"])

    def wait_event(
        self, what: str, kind: str, holds: Callable[[Event], bool] = lambda _: True, within_s: float = PATIENCE_S
    ) -> Event:
        """The first event of ``kind`` for which ``holds``; fails at once when the run has ended without it."""

        def look() -> Event | None:
            ended = self.process.poll() is not None
            found = [event for event in self.events(kind) if holds(event)]
            assert found or not ended, f"the run ended without {what}"
            return found[0] if found else None

        try:
            return eventually(what, look, within_s)
        except AssertionError as error:
            reports = [Path(event["path"]).read_text()[:6000] for event in self.events("run.stalled")[-1:]]
            raise AssertionError("\n".join([str(error), *reports, self.stderr[-4000:]])) from None

    def wait_step(self, step: int, within_s: float = PATIENCE_S) -> Event:
        return self.wait_event(f"step {step}", "learner.step", lambda event: event["step"] >= step, within_s)

    def finish(self, within_s: float = PATIENCE_S) -> FinishedRun:
        try:
            code = self.process.wait(within_s)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"no end within {within_s:g} s:\n{self.stderr[-4000:]}") from None
        return FinishedRun(code, self._out.read_text(), self.stderr)

    def succeed(self, within_s: float = PATIENCE_S) -> dict[str, Any]:
        """Wait for exit code 0 and give the summary."""
        finished = self.finish(within_s)
        summary = finished.json
        failed = summary.get("failed_checks", [f"exit code {finished.exit_code}: {finished.stdout}"])
        assert not failed, f"{failed}\n{finished.stderr[-4000:]}"
        return summary

    def list_resources(self) -> list[str]:
        """List the Docker containers, networks and volumes of this run."""
        return [each for kind in (["ps", "--all"], ["network", "ls"], ["volume", "ls"]) for each in self._list(kind)]

    def list_containers(self) -> list[str]:
        """Those that the engine holds of this run."""
        return self._list(["ps", "--all"])

    def list_started_containers(self) -> list[str]:
        """Those without what was only created: that has no process that could end it, and the next clean-up does."""
        states = ("running", "paused", "restarting", "removing", "exited", "dead")
        return self._list(["ps", "--all", *(word for state in states for word in ("--filter", f"status={state}"))])

    def _list(self, kind: list[str]) -> list[str]:
        mine = f"label={RUN_LABEL}={self.path.name}"
        command = ["docker", "--host", docker_url(), *kind, "--quiet", "--filter", mine]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()

    # -- its processes ---------------------------------------------------------------------------------------------

    def run_token(self) -> str:
        """The run's token, which every process that it started carries in its environment."""

        def look() -> str:
            assert self.process.poll() is None, f"the run has ended:\n{self.stderr[-4000:]}"
            return self._token()

        return eventually("a process that carries the run's token", look)

    def _token(self) -> str:
        for entry in Path("/proc").iterdir():
            with contextlib.suppress(OSError, IndexError):
                if entry.name.isdigit() and _parent(entry) == self.process.pid:
                    for word in (entry / "environ").read_bytes().split(b"\0"):
                        name, _, value = word.partition(b"=")
                        if name.decode() == RUN_TOKEN_VARIABLE:
                            return value.decode()
        return ""

    def pids(self, words: str) -> list[int]:
        """Processes of this run whose command line has ``words``."""
        return [pid for pid, _ in find_run_processes(self.run_token()) if words in _command_line(pid)]

    def kill_process(self, words: str, how: signal.Signals = signal.SIGKILL) -> int:
        """A signal for the only process of this run whose command line has ``words``."""

        def look() -> list[int]:
            assert self.process.poll() is None, f"the run ended before {words} was killed"
            found = self.pids(words)
            return found if len(found) == 1 else []

        (pid,) = eventually(f"one process {words}", look)
        os.kill(pid, how)
        return pid

    def kill_server(self) -> int:
        """SIGKILL for the SGLang server's main process; its pid is in the event that says that it serves."""

        def look() -> int:
            assert self.process.poll() is None, "the run ended before its server was killed"
            pid = self.events("engine.started", "engine.restarted")[-1]["pid"]
            return pid if pid in {each.pid for each in find_run_processes(self.run_token())} else 0

        pid = eventually("a server", look)
        os.kill(pid, signal.SIGKILL)
        return pid

    def clean_up(self) -> None:
        """End the command if it still runs; its reaper ends the rest."""
        if self.process.poll() is None:
            token = self._token()
            self.process.kill()
            self.process.wait()
            if token:
                eventually("the end of what the killed run had started", lambda: not find_run_processes(token), 120)


def _parent(entry: Path) -> int:
    return int((entry / "stat").read_text().rpartition(")")[2].split()[1])


def _command_line(pid: int) -> str:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    return ""


def shared_memory(pids: list[int]) -> set[Path]:
    """Files under /dev/shm that any of ``pids`` has mapped and that have a name."""
    found: set[Path] = set()
    for pid in pids:
        with contextlib.suppress(OSError):
            mapped = (line.split(maxsplit=5)[-1] for line in Path(f"/proc/{pid}/maps").read_text().splitlines())
            found.update(Path(name) for name in mapped if name.startswith("/dev/shm/") and "(deleted)" not in name)
    return found


def listening_ports(pids: list[int]) -> set[int]:
    """TCP ports that any of ``pids`` listens on."""
    sockets: set[str] = set()
    for pid in pids:
        with contextlib.suppress(OSError):
            for link in Path(f"/proc/{pid}/fd").iterdir():
                with contextlib.suppress(OSError):
                    name = str(link.readlink())
                    if name.startswith("socket:["):
                        sockets.add(name[8:-1])
    return {port for inode, port in _listeners() if inode in sockets}


def all_listening_ports() -> set[int]:
    return {port for _, port in _listeners()}


def _listeners() -> Iterator[tuple[str, int]]:
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        for line in Path(table).read_text().splitlines()[1:]:
            words = line.split()
            if words[3] == "0A":
                yield words[9], int(words[1].rpartition(":")[2], 16)


def replay_summary(run: Path, *options: str) -> dict[str, Any]:
    """Train again on a run's recorded trajectories and return the summary."""
    command = [sys.executable, "-m", "launch.replay", str(run), "--json", *options]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr[-4000:]
    return json.loads(ended.stdout)


class MiniRuns:
    """Starts mini runs in one folder."""

    def __init__(self, folder: Path, tasks: Path) -> None:
        self.folder, self.tasks, self._logs = folder / "runs", tasks, folder / "logs"
        self._logs.mkdir(parents=True)
        self._started: list[MiniRun] = []
        self._number = 0

    def start(
        self,
        run_id: str,
        *options: str,
        runs: Path | None = None,
        env: Mapping[str, str] | None = None,
        program: str = CLUSTER,
        prefix: Sequence[str] = (),
        recipe: str = str(RECIPE),
    ) -> MiniRun:
        """Start a new run; options later on the line win.  ``prefix``: what runs the command, and becomes it."""
        return self._launch(run_id, ["--run-id", run_id, *options], runs, env, program, prefix, recipe)

    def resume(
        self,
        run_id: str,
        *options: str,
        runs: Path | None = None,
        env: Mapping[str, str] | None = None,
        prefix: Sequence[str] = (),
    ) -> MiniRun:
        return self._launch(run_id, ["--resume", run_id, *options], runs, env, prefix=prefix)

    def _launch(
        self,
        run_id: str,
        options: list[str],
        runs: Path | None,
        env: Mapping[str, str] | None,
        program: str = CLUSTER,
        prefix: Sequence[str] = (),
        recipe: str = str(RECIPE),
    ) -> MiniRun:
        folder = runs or self.folder
        command = self.command(*options, runs=folder, program=program, recipe=recipe)
        return self._spawn(folder / run_id, [*prefix, *command], env)

    def demo(self, run_id: str, *options: str) -> MiniRun:
        """The demo itself, of minutes, as a new user starts it."""
        words = ("demo", "--json", "--set", f"run.dir={self.folder}", "--run-id", run_id, *options)
        return self._spawn(self.folder / run_id, [sys.executable, "-m", CLUSTER, *words])

    def _spawn(self, run_dir: Path, command: list[str], env: Mapping[str, str] | None = None) -> MiniRun:
        self._number += 1
        logs = self._logs / str(self._number)
        logs.mkdir()
        started = MiniRun(run_dir, command, logs, env)
        self._started.append(started)
        return started

    def command(
        self, *options: str, runs: Path | None = None, program: str = CLUSTER, recipe: str = str(RECIPE)
    ) -> list[str]:
        places = ("--set", f"run.dir={runs or self.folder}", "--set", f"data.path={self.tasks}")
        return [sys.executable, "-m", program, recipe, "--json", *places, *options]

    @property
    def started(self) -> int:
        return len(self._started)

    def clean_up(self, since: int = 0) -> None:
        """End the runs that have been started since, if they still run."""
        for run in self._started[since:]:
            run.clean_up()

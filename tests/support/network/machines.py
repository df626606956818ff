"""Machines of a cluster on one: network namespaces on a switch, each with an address, a /tmp and a shared memory of its
own, for tests that run as root.  What a machine's /tmp holds is seen in :attr:`Machine.files`."""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from tests.support.network import namespaces
from tests.support.runs.cluster_runs import ROOT, eventually

PORT = 6379
_TRIES = 10
_OWN_FOLDERS = 'mount --bind "$1" /tmp && mount -t tmpfs -o size=2g tmpfs /dev/shm && shift && exec "$@"'
_RAY = (sys.executable, "-m", "ray.scripts.scripts")
_NODE = ("--block", "--num-cpus=64", "--object-store-memory=83886080", "--disable-usage-stats")


def why_unavailable() -> str | None:
    """Why this machine has none; None where it has."""
    if (why := namespaces.why_unavailable()) is not None:
        return why
    return next((f"there is no {name}(1)" for name in ("nsenter", "unshare") if shutil.which(name) is None), None)


@dataclass
class Machine:
    """``files``: its /tmp; None for the first, which has the tests' own."""

    namespace: str
    address: str
    port: str
    """The switch's end of its cable."""
    switch: str
    files: Path | None
    env: Mapping[str, str]
    logs: Path
    session: Path
    """Ray's session folder: the same path on every machine."""
    _started: list[subprocess.Popen[bytes]] = field(default_factory=list[subprocess.Popen[bytes]])

    @property
    def log(self) -> Path:
        return self.logs / f"{self.namespace}.log"

    def prefix(self) -> list[str]:
        """The words before a command that is to run on this machine."""
        inside = ["nsenter", f"--net=/run/netns/{self.namespace}"]
        if self.files is None:
            return inside
        return [*inside, "unshare", "--mount", "sh", "-c", _OWN_FOLDERS, "sh", str(self.files)]

    def start_head(self, *options: str) -> str:
        """Ray's; the cluster's address, once others can join."""
        self._start("--head", f"--port={PORT}", "--include-dashboard=false", f"--temp-dir={self.session}", *options)
        return f"{self.address}:{PORT}"

    def join(self, cluster: str, *options: str, env: Mapping[str, str] | None = None) -> None:
        """A Ray node of ``cluster``, once it is up."""
        self._start(f"--address={cluster}", *options, env=env)

    def _start(self, *options: str, env: Mapping[str, str] | None = None) -> None:
        """Start Ray, several times if needed: it gives a node 30 s, which a busy machine can exceed."""
        for _ in range(_TRIES):
            offset = self.log.stat().st_size if self.log.exists() else 0
            started = self._ray(*options, env=env)
            eventually(
                "Ray's start", lambda offset=offset, started=started: self._is_up(offset) or started.poll() is not None
            )
            if self._is_up(offset):
                return
        raise AssertionError(f"Ray did not start at {_TRIES} tries: see {self.log}")

    def _is_up(self, offset: int) -> bool:
        """Whether Ray's log reports the start behind its first ``offset`` bytes."""
        return b"Ray runtime started" in self.log.read_bytes()[offset:]

    def _ray(self, *options: str, env: Mapping[str, str] | None = None) -> subprocess.Popen[bytes]:
        command = [*self.prefix(), *_RAY, "start", f"--node-ip-address={self.address}", *_NODE, *options]
        with self.log.open("ab") as log:
            started = subprocess.Popen(
                command, cwd=ROOT, env={**self.env, **(env or {})}, stdout=log, stderr=log, start_new_session=True
            )
        self._started.append(started)
        return started

    def pids(self) -> list[int]:
        """Return the pids of all processes on this machine."""
        listed = subprocess.run(["ip", "netns", "pids", self.namespace], check=True, capture_output=True, text=True)
        return [int(word) for word in listed.stdout.split()]

    def kill(self) -> None:
        """Everything that runs here, at once, as a power cut does."""
        while pids := self.pids():
            for pid in pids:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        for process in self._started:
            process.wait()
        self._started.clear()

    def kill_ray(self) -> None:
        """The process of Ray that stands for this node, alone."""
        for pid in self.pids():
            with contextlib.suppress(OSError):
                if Path(f"/proc/{pid}/comm").read_text().strip() == "raylet":
                    os.kill(pid, signal.SIGKILL)

    def remaining_run_folders(self) -> list[Path]:
        """Return the run folders that are still on this machine, empty ones too."""
        return [] if self.files is None else [*self.files.glob("longshore/*")]

    def disconnect(self) -> None:
        """Drop all packets without an error at either end."""
        _ip("-n", self.switch, "link", "set", self.port, "down")

    def reconnect(self) -> None:
        _ip("-n", self.switch, "link", "set", self.port, "up")


@contextmanager
def machines(count: int, folder: Path, settings: Mapping[str, str]) -> Iterator[list[Machine]]:
    """Yield machines on one switch that share a secret token; ``settings`` are for every Ray process. Everything,
    including the processes there, is removed afterwards."""
    tag = secrets.token_hex(2)
    switch, made, built = f"lsw{tag}", list[str](), list[Machine]()
    session = Path(tempfile.gettempdir()) / f"lsm{tag}"
    env = {**os.environ, **settings, "RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32)}
    try:
        _ip("netns", "add", switch)
        made.append(switch)
        _ip("-n", switch, "link", "add", "bridge", "type", "bridge")
        _ip("-n", switch, "link", "set", "bridge", "up")
        for number in range(count):
            name, port = f"lsm{tag}{number}", f"port{number}"
            _ip("netns", "add", name)
            made.append(name)
            _ip("link", "add", port, "netns", switch, "type", "veth", "peer", "name", "cable", "netns", name)
            _ip("-n", switch, "link", "set", port, "master", "bridge", "up")
            _ip("-n", name, "address", "add", f"10.84.7.{number + 1}/24", "dev", "cable")
            _ip("-n", name, "link", "set", "cable", "up")
            _ip("-n", name, "link", "set", "lo", "up")
            files = None if number == 0 else folder / f"machine-{number}"
            if files is not None:
                files.mkdir()
            built.append(Machine(name, f"10.84.7.{number + 1}", port, switch, files, env, folder, session))
        yield built
    finally:
        for machine in built:
            machine.kill()
        for name in reversed(made):
            _ip("netns", "del", name)
        shutil.rmtree(session, ignore_errors=True)


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True)

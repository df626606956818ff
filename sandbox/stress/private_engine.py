"""A private dockerd for faults: its own data root, exec root, socket and pid file; its containers outlive it unless
asked otherwise."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Self

from protocol.errors import InfraError
from sandbox.docker import daemon, owner
from sandbox.docker.address import DockerAddress
from sandbox.host_record import SandboxHost

_DEAD_S = 60.0
_POLL_S = 0.05


def why_unavailable(docker_url: str) -> str:
    """Return why no second engine can be started next to the one at this address; empty if one can."""
    if not DockerAddress.parse(docker_url).socket:
        return "the engine is on another machine"
    if os.geteuid() != 0:
        return "only root can start an engine"
    return "" if shutil.which("dockerd") and shutil.which("docker") else "dockerd is not installed"


class PrivateEngine:
    """A dockerd with the base image: ``async with PrivateEngine.running(host) as engine``; nothing of it is left."""

    def __init__(self, host: SandboxHost, data: Path, runtime: Path, *, live_restore: bool = True) -> None:
        """``data`` and ``runtime`` are folders of its own; a socket's path must be short.  Without ``live_restore``,
        Docker's default, a restart of the engine ends its containers."""
        self._data, self._runtime, self._live_restore = data, runtime, live_restore
        self._owner = ""
        self.host = replace(host, docker_url=f"unix://{runtime}/docker.sock", engine_owner="")
        """The host's record with this engine's address, for a pool."""

    @classmethod
    @asynccontextmanager
    async def running(cls, host: SandboxHost, *, live_restore: bool = True) -> AsyncGenerator[Self]:
        """Start an engine and close it at the end of the block. Raises UserError if it does not start, InfraError."""
        with (
            tempfile.TemporaryDirectory(prefix="longshore-engine-", dir="/var/lib", ignore_cleanup_errors=True) as data,
            tempfile.TemporaryDirectory(prefix="ls-", dir="/run", ignore_cleanup_errors=True) as runtime,
        ):
            engine = cls(host, Path(data), Path(runtime), live_restore=live_restore)
            try:
                await engine.start()
                await asyncio.to_thread(engine.load_base_image, host.docker_url)
                yield engine
            finally:
                await asyncio.shield(engine.close())

    def load_base_image(self, docker_url: str) -> None:
        """Copy the base image from the engine at ``docker_url``. Blocking. Raises UserError."""
        image = self._data / "image.tar"
        save = ("docker", "--host", docker_url, "save", "--output", str(image), self.host.base_image)
        daemon.run_program(save, "save the base image")
        daemon.run_program(
            ("docker", "--host", self.host.docker_url, "load", "--input", str(image)), "load the base image"
        )
        image.unlink()

    async def start(self) -> None:
        """Start it, also after :meth:`kill`. Raises UserError."""
        settings = self._data / "daemon.json"
        settings.write_text("{}")  # else it would read the machine's own
        options = (f"--live-restore={str(self._live_restore).lower()}", f"--config-file={settings}")
        _, pid = await asyncio.to_thread(
            daemon.start_engine, self._data, self._runtime, lambda _: None, options=options
        )
        self._owner = owner.owner_of_process(pid)

    def send_signal(self, number: signal.Signals) -> None:
        """Send it a signal. Raises ProcessLookupError if it does not run."""
        if not self._owner or owner.is_proved_dead(self._owner):
            raise ProcessLookupError("the engine does not run")
        os.kill(owner.owner_pid(self._owner), number)

    async def kill(self, how: signal.Signals = signal.SIGKILL) -> None:
        """Kill it and wait until it is dead; with live restore its containers keep running.

        Raises InfraError if it does not die.
        """
        with contextlib.suppress(ProcessLookupError):
            self.send_signal(how)
            try:
                async with asyncio.timeout(_DEAD_S):
                    while not owner.is_proved_dead(self._owner):  # noqa: ASYNC110  nobody's child: there is no event
                        await asyncio.sleep(_POLL_S)
            except TimeoutError as error:
                raise InfraError(f"the private dockerd did not end within {_DEAD_S:g} s of {how.name}") from error
        # its containerd dies with it, and where nobody reaps it, the next dockerd takes it for alive
        for pid_file in ("docker.pid", "exec/containerd/containerd.pid"):
            (self._runtime / pid_file).unlink(missing_ok=True)

    async def close(self) -> None:
        """Stop it, and remove everything that is left of it: shims, mounts."""
        with contextlib.suppress(ProcessLookupError):
            self.send_signal(signal.SIGCONT)
        try:
            await self.kill(signal.SIGTERM)
        except InfraError:
            await self.kill()
        for pid in _started_in(self._runtime):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        await asyncio.to_thread(_unmount, (self._data, self._runtime))


def _started_in(folder: Path) -> Iterator[int]:
    """Yield the processes that have the folder in their arguments: containerd and its shims."""
    mark = f"{folder}/".encode()
    for each in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            if mark in each.read_bytes():
                yield int(each.parent.name)


def _unmount(folders: tuple[Path, ...]) -> None:
    inside = tuple(f"{folder}/" for folder in folders)
    for line in reversed(Path("/proc/mounts").read_text().splitlines()):
        mounted = line.split()[1]
        if mounted.startswith(inside):
            subprocess.run(("umount", "--lazy", mounted), check=False, capture_output=True)

"""One SGLang server process: started under a guardian, ready when it has answered a request, ended with its group.

The owner holds the write end of the guardian's pipe: whatever ends the owner ends the server, during start-up too.
The guardian is watched through a pipe, so the event loop needs no child watcher and may run in any thread.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import secrets
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from actors.engines.messages import EnginePids, EngineStartError, PauseMode, PortTaken, RequestRefused, ServerLost
from actors.engines.server.client import SamplingOptions, SGLangClient
from actors.engines.weights.adapter_files import AdapterSettings
from protocol.processes.loopback import find_free_port
from protocol.weights import WeightManifest

_ROOT = Path(__file__).resolve().parents[3]
_GUARDIAN = Path(__file__).with_name("process_reaper.py")
_PORTS = 3
"""That are tried."""
_PROBE_EVERY_S = 0.2
_PROBE = SamplingOptions(max_new_tokens=1, temperature=1.0, stop_token_ids=(), greedy=True)
_CPU_MEMORY_SHARE = 0.2
RESERVED_TOKENS = 6
"""Places that SGLang keeps for itself: of n, an input may fill n − 7 and a reply go on to n − 2.  The context and the
KV slots that it is started with are larger by so many than what requests may use."""
API_KEY_VARIABLE = "LONGSHORE_ENGINE_KEY"
"""The variable by which a server is told its key."""
_TAIL_LINES = 5
_ESCAPE = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]")


@dataclass(frozen=True, slots=True, kw_only=True)
class SGLangServerSettings:
    device: str
    """``cpu`` or ``cuda``."""
    tp: int
    """GPUs that share the model."""
    memory_share: float
    """Of a GPU's memory, for weights and KV."""
    dtype: str
    context_length: int
    """Input and reply of one request together: all of it can be used."""
    max_total_tokens: int | None
    max_running: int
    seed: int
    deterministic: bool
    offloads_memory: bool
    """Whether the server is to give its memory away at times."""
    adapters: AdapterSettings | None
    """With them the server can load adapters beside its weights."""
    pause_mode: PauseMode
    log: Path
    start_timeout_s: float
    stop_grace_s: float

    @property
    def saves_memory(self) -> bool:
        """On a CPU there is none to save, and SGLang refuses to try."""
        return self.offloads_memory and self.device == "cuda"


@dataclass(frozen=True, slots=True)
class _Reaper:
    pids: EnginePids
    stop_fd: int
    """Write end: a byte, or the end of this process, ends the server."""
    told_fd: int
    """Read end: at the end the exit status comes here, and why; end of file alone is the guardian's death."""


def server_arguments(settings: SGLangServerSettings, manifest: WeightManifest, port: int) -> list[str]:
    """SGLang's command line, but for its key."""
    arguments = [
        "--model-path", manifest.path, "--weight-version", str(manifest.version), "--skip-tokenizer-init",
        "--host", "127.0.0.1", "--port", str(port),
        "--device", settings.device, "--dtype", settings.dtype, "--random-seed", str(settings.seed),
        "--context-length", str(settings.context_length + RESERVED_TOKENS),
        "--max-running-requests", str(settings.max_running),
        "--mem-fraction-static", str(settings.memory_share if settings.device == "cuda" else _CPU_MEMORY_SHARE),
        "--tp-size", str(settings.tp), "--grammar-backend", "none",
        "--sampling-backend", "pytorch", "--skip-server-warmup", "--sleep-on-idle",
        "--incremental-streaming-output",
    ]  # fmt: skip
    if settings.pause_mode == "in_place":
        arguments += ["--disable-overlap-schedule"]
    if settings.max_total_tokens is not None:
        arguments += ["--max-total-tokens", str(settings.max_total_tokens + RESERVED_TOKENS)]
    if settings.deterministic:
        arguments += ["--enable-deterministic-inference"]
    if settings.saves_memory:
        arguments += ["--enable-memory-saver"]
    if settings.adapters is not None:
        arguments += settings.adapters.sglang_arguments(settings.device)
    if settings.device == "cpu":
        arguments += ["--attention-backend", "torch_native", "--disable-cuda-graph"]
    return arguments


def server_environment(settings: SGLangServerSettings, api_key: str) -> dict[str, str]:
    environment = dict(os.environ)
    paths = [str(_ROOT), *environment.get("PYTHONPATH", "").split(os.pathsep)]
    environment |= {
        "PYTHONPATH": os.pathsep.join(filter(None, paths)),
        "PYTHONUNBUFFERED": "1",
        API_KEY_VARIABLE: api_key,
        "HF_HUB_OFFLINE": "1",
        "TOKENIZERS_PARALLELISM": "false",
    }
    if settings.device == "cpu":
        environment |= {"OMP_NUM_THREADS": "1", "SGLANG_USE_CPU_ENGINE": "1", "CUDA_VISIBLE_DEVICES": ""}
        environment.setdefault("GLOO_SOCKET_IFNAME", "lo")  # else its groups listen on every address
    if settings.saves_memory:
        environment |= {"SGLANG_MEMORY_SAVER_CUDA_GRAPH": "1"}  # else its graphs stay
    return environment


class SGLangServer:
    """A running server.  Made by :meth:`launch`; ``ended`` resolves with a sentence when its processes are gone."""

    def __init__(self, guardian: _Reaper, port: int, client: SGLangClient) -> None:
        self.client, self.port, self.pids = client, port, guardian.pids
        self._guardian, self._told = guardian, b""
        self._loop = asyncio.get_running_loop()
        self.ended: asyncio.Future[str] = self._loop.create_future()
        os.set_blocking(guardian.told_fd, False)
        self._loop.add_reader(guardian.told_fd, self._on_told)

    @classmethod
    async def launch(cls, settings: SGLangServerSettings, manifest: WeightManifest) -> SGLangServer:
        """Start a server on the manifest's weights and return once it has sampled a token with them.  Where another
        program takes its port before it does, that is tried again.

        Raises :class:`EngineStartError` when the process ends or the time runs out; nothing is left running then.
        """
        for left in reversed(range(_PORTS)):
            try:
                return await cls._launch(settings, manifest)
            except PortTaken as error:
                if not left:
                    said = f"other programs took {_PORTS} ports before the server did: {error}"
                    raise EngineStartError(said) from error
        raise AssertionError("unreachable")

    @classmethod
    async def _launch(cls, settings: SGLangServerSettings, manifest: WeightManifest) -> SGLangServer:
        """Raises :class:`EngineStartError`, :class:`StrangeServer`."""
        settings.log.parent.mkdir(parents=True, exist_ok=True)
        port, api_key = find_free_port(), secrets.token_hex(16)
        command = [
            sys.executable, "-I", "-S", str(_GUARDIAN), str(settings.stop_grace_s), "--",
            sys.executable, "-m", "actors.engines.server.entrypoint", f"--stacks={settings.log.with_suffix('')}",
            *server_arguments(settings, manifest, port),
        ]  # fmt: skip
        offset = settings.log.stat().st_size if settings.log.exists() else 0
        server: SGLangServer | None = None
        try:
            server = cls(
                _spawn(command, settings, api_key), port, SGLangClient(port, api_key, pause=settings.pause_mode)
            )
            await server.client.open()
            async with asyncio.timeout(settings.start_timeout_s):
                await server._until_ready(manifest)
        except (TimeoutError, ServerLost) as error:
            if server is not None:
                await server.stop()
            if isinstance(error, PortTaken):
                raise
            why = "no answer in time" if isinstance(error, TimeoutError) else str(error)
            raise EngineStartError(
                f"the SGLang server did not start within {settings.start_timeout_s:g} s: {why}; "
                f"read its log, {settings.log}, which ends:\n{_tail(settings.log, offset)}"
            ) from error
        except BaseException:
            if server is not None:
                await server.stop()
            raise
        return server

    async def _until_ready(self, manifest: WeightManifest) -> None:
        """Probe until a token comes.  Raises :class:`ServerLost` when the process ends first."""
        number = 0
        while True:
            if self.ended.done():
                raise ServerLost(self.ended.result())
            number += 1
            try:
                await self.client.generate(f"ready-{number}", [0], _PROBE, "probe")
                version = await self.client.read_version()
            except PortTaken:
                raise
            except (ServerLost, RequestRefused):
                await asyncio.sleep(_PROBE_EVERY_S)
                continue
            if version != manifest.version:
                raise ServerLost(f"it serves version {version}, not {manifest.version}")
            return

    async def probe(self, rid: str, *, adapter: str = "") -> None:
        """Sample one token, of a prefix of its own."""
        await self.client.generate(rid, [0], _PROBE, "probe", adapter=adapter)

    async def stop(self) -> None:
        """End every process of the server and wait until none is left."""
        await self.client.close()
        if not self.ended.done():
            with contextlib.suppress(OSError):
                os.write(self._guardian.stop_fd, b"x")
            await asyncio.shield(self.ended)

    def _on_told(self) -> None:
        """The guardian wrote how the server ended, or, at end of file, is gone."""
        try:
            chunk = os.read(self._guardian.told_fd, 64)
        except BlockingIOError:
            return
        if chunk:
            self._told += chunk
            return
        self._loop.remove_reader(self._guardian.told_fd)
        os.close(self._guardian.told_fd)
        os.close(self._guardian.stop_fd)
        if self._told:
            self.ended.set_result(_describe(self._told.decode()))
            return
        with contextlib.suppress(OSError):  # the guardian was killed and may have left some of the group
            os.killpg(self.pids.server, signal.SIGKILL)
        self.ended.set_result("the server's guardian was killed")


def _spawn(command: list[str], settings: SGLangServerSettings, api_key: str) -> _Reaper:
    """Start a guardian, which says within milliseconds who it is.  Raises :class:`ServerLost`."""
    stop_read, stop_fd = os.pipe()
    told_fd, told_write = os.pipe()
    try:
        with settings.log.open("ab") as log:
            log.write(f"--- {time.strftime('%Y-%m-%d %H:%M:%S', time.gmtime())} UTC\n".encode())
            log.flush()
            subprocess.run(
                command,
                stdin=stop_read,
                stdout=told_write,
                stderr=log,
                env=server_environment(settings, api_key),
                cwd=settings.log.parent,
                start_new_session=True,
                check=False,
            )
    except BaseException:
        os.close(stop_fd)
        os.close(told_fd)
        raise
    finally:
        os.close(stop_read)
        os.close(told_write)
    pids = _first_line(told_fd).split()
    if len(pids) != 2:
        os.close(stop_fd)
        os.close(told_fd)
        raise ServerLost("its guardian did not start")
    return _Reaper(EnginePids(int(pids[0]), int(pids[1])), stop_fd, told_fd)


def _first_line(fd: int) -> bytes:
    line = b""
    while not line.endswith(b"\n") and (byte := os.read(fd, 1)):
        line += byte
    return line


def _tail(log: Path, offset: int) -> str:
    """The last lines after ``offset`` that say something, without colours."""
    with log.open("rb") as stream:
        stream.seek(offset)
        lines = _ESCAPE.sub("", stream.read().decode(errors="replace")).splitlines()
    lines = [line.rstrip() for line in lines if any(map(str.isalnum, line)) and not line.startswith("--- ")]
    return "\n".join(f"    {line}" for line in lines[-_TAIL_LINES:])


def _describe(told: str) -> str:
    """How the server ended, by its guardian's last line: a part that ended before it says more than its own status."""
    first, _, why = told.strip().partition(" ")
    if why:
        return f"the server was ended: {why}"
    status = int(first)
    with contextlib.suppress(ValueError):
        return f"the server was ended by {signal.Signals(status - 128).name}"
    return f"the server ended with status {status}"

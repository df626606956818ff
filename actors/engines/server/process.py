"""One SGLang server process: started under a process reaper, ready once it has answered, ended with its group.

The owner holds the write end of the reaper's pipe, so whatever ends the owner ends the server, during start-up too.
The reaper is watched through a pipe, so the event loop needs no child watcher and may run in any thread.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import secrets
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from actors.engines.messages import EngineStartError, RequestRefused, ServerLost, ServerPortTaken
from actors.engines.server.client import SamplingOptions, SGLangClient
from actors.engines.settings import EngineSettings, EngineSpec, LoraShape
from protocol.processes.loopback import find_free_port
from protocol.weights import WeightManifest

_ROOT = Path(__file__).resolve().parents[3]
_REAPER = Path(__file__).with_name("process_reaper.py")
_PORT_ATTEMPTS = 3
"""Number of ports that are tried."""
_PROBE_EVERY_S = 0.2
_PROBE = SamplingOptions(max_new_tokens=1, temperature=1.0, stop_token_ids=(), greedy=True)
_CPU_MEMORY_SHARE = 0.2
RESERVED_TOKENS = 6
"""Token slots that SGLang reserves: of n, an input may fill n − 7 and a reply may grow to n − 2.  A server's context
and KV cache are started larger by this much than what requests may use."""
API_KEY_VARIABLE = "LONGSHORE_ENGINE_KEY"
"""The environment variable that holds a server's API key."""
_TAIL_LINES = 5
_ESCAPE = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]")


@dataclass(frozen=True, slots=True)
class _Reaper:
    """The process reaper of a server, and the pipes to it."""

    server_pid: int
    """Leader of the server's process group."""
    folder: Path
    """The server's temporary files."""
    stop_fd: int
    """Write end: a byte, or the end of this process, ends the server."""
    status_fd: int
    """Read end: the exit status and its reason arrive here; end of file alone means that the reaper died."""


def server_arguments(spec: EngineSpec, manifest: WeightManifest, port: int) -> list[str]:
    """Return SGLang's command line, without the API key."""
    settings = spec.settings
    arguments = [
        "--model-path", manifest.path, "--weight-version", str(manifest.version), "--skip-tokenizer-init",
        "--host", "127.0.0.1", "--port", str(port),
        "--device", settings.device, "--dtype", settings.dtype, "--random-seed", str(spec.seed),
        "--context-length", str(spec.context_length + RESERVED_TOKENS),
        "--max-running-requests", str(settings.max_running + 1),  # the probe never waits for room
        "--max-total-tokens", str(settings.max_total_tokens + RESERVED_TOKENS),
        "--mem-fraction-static", str(settings.mem_fraction_static if settings.device == "cuda" else _CPU_MEMORY_SHARE),
        "--tp-size", str(settings.tp), "--grammar-backend", "none",
        "--sampling-backend", "pytorch", "--skip-server-warmup", "--sleep-on-idle",
        "--incremental-streaming-output",
    ]  # fmt: skip
    if settings.pause_mode == "in_place":
        arguments += ["--disable-overlap-schedule"]
    if settings.deterministic:
        arguments += ["--enable-deterministic-inference"]
    if spec.saves_memory:
        arguments += ["--enable-memory-saver"]
    if spec.lora is not None:
        arguments += _adapter_arguments(spec.lora, settings)
    if settings.device == "cpu":
        arguments += ["--attention-backend", "torch_native", "--disable-cuda-graph"]
    return arguments


def _adapter_arguments(lora: LoraShape, settings: EngineSettings) -> list[str]:
    """Return the options for adapters.  There is one slot more than adapters, for requests without one: the probes."""
    slots = str(settings.max_adapters + 1)
    return [
        "--enable-lora", "--max-lora-rank", str(lora.rank), "--lora-target-modules", *lora.projections,
        "--max-loaded-loras", slots, "--max-loras-per-batch", slots,
        *(("--lora-backend", "torch_native") if settings.device == "cpu" else ()),
    ]  # fmt: skip


def server_environment(spec: EngineSpec, api_key: str) -> dict[str, str]:
    """Return the environment of the server's process."""
    environment, on_cpu = dict(os.environ), spec.settings.device == "cpu"
    paths = [str(_ROOT), *environment.get("PYTHONPATH", "").split(os.pathsep)]
    environment |= {
        "PYTHONPATH": os.pathsep.join(filter(None, paths)),
        "PYTHONUNBUFFERED": "1",
        API_KEY_VARIABLE: api_key,
        "HF_HUB_OFFLINE": "1",
        "TOKENIZERS_PARALLELISM": "false",
    }
    with contextlib.suppress(RuntimeError):  # no home: what it compiles ends with its temporary files
        environment.setdefault("TORCHINDUCTOR_CACHE_DIR", str(Path.home() / ".cache" / "sglang" / "inductor"))
    if on_cpu:
        environment |= {"OMP_NUM_THREADS": "1", "SGLANG_USE_CPU_ENGINE": "1", "CUDA_VISIBLE_DEVICES": ""}
        environment.setdefault("GLOO_SOCKET_IFNAME", "lo")  # else its groups listen on every address
    if spec.saves_memory:
        environment |= {"SGLANG_MEMORY_SAVER_CUDA_GRAPH": "1"}  # else the graphs stay in memory
    return environment


class SGLangServer:
    """A running server, made by :meth:`launch`.  ``ended`` resolves with a sentence once its processes are gone."""

    def __init__(self, reaper: _Reaper, port: int, client: SGLangClient) -> None:
        self.client, self.port, self.pid = client, port, reaper.server_pid
        self._reaper, self._status = reaper, b""
        self._loop = asyncio.get_running_loop()
        self.ended: asyncio.Future[str] = self._loop.create_future()
        os.set_blocking(reaper.status_fd, False)
        self._loop.add_reader(reaper.status_fd, self._on_status)

    @classmethod
    async def launch(cls, spec: EngineSpec, manifest: WeightManifest) -> SGLangServer:
        """Start a server on the manifest's weights and return once it has sampled a token with them.  If another
        program takes its port first, another port is tried.

        Raises :class:`EngineStartError` when the process ends or the time runs out; nothing is left running then.
        """
        for left in reversed(range(_PORT_ATTEMPTS)):
            try:
                return await cls.launch_once(spec, manifest)
            except ServerPortTaken as error:
                if not left:
                    why = f"other programs took {_PORT_ATTEMPTS} ports before the server did: {error}"
                    raise EngineStartError(why) from error
        raise AssertionError("unreachable")

    @classmethod
    async def launch_once(cls, spec: EngineSpec, manifest: WeightManifest) -> SGLangServer:
        """Start a server on a free port.  Raises :class:`EngineStartError` or :class:`ServerPortTaken`."""
        log, start_timeout_s = spec.log, spec.settings.start_timeout_s
        log.parent.mkdir(parents=True, exist_ok=True)
        port, api_key = find_free_port(), secrets.token_hex(16)
        command = [
            sys.executable, "-I", "-S", str(_REAPER), str(spec.stop_grace_s), "--",
            sys.executable, "-m", "actors.engines.server.entrypoint", f"--stacks={log.with_suffix('')}",
            *server_arguments(spec, manifest, port),
        ]  # fmt: skip
        offset = log.stat().st_size if log.exists() else 0
        try:
            async with contextlib.AsyncExitStack() as undo:
                client = SGLangClient(port, api_key, pause=spec.settings.pause_mode)
                server = cls(_spawn(command, spec, api_key), port, client)
                undo.push_async_callback(server.stop)
                await server.client.open()
                async with asyncio.timeout(start_timeout_s):
                    await server._until_ready(manifest)
                undo.pop_all()
        except ServerPortTaken:
            raise
        except (TimeoutError, ServerLost) as error:
            why = f"no answer within {start_timeout_s:g} s" if isinstance(error, TimeoutError) else str(error)
            raise EngineStartError(
                f"the SGLang server did not start: {why}; "
                f"read its log, {log}, which ends:\n{read_log_tail(log, offset)}"
            ) from error
        return server

    async def _until_ready(self, manifest: WeightManifest) -> None:
        """Probe until a token arrives.  Raises :class:`ServerLost` if the process ends first."""
        number = 0
        while True:
            if self.ended.done():
                raise ServerLost(self.ended.result())
            number += 1
            try:
                await self.client.generate(f"ready-{number}", [0], _PROBE, "probe")
                version = await self.client.read_version()
            except ServerPortTaken:
                raise
            except (ServerLost, RequestRefused):
                await asyncio.sleep(_PROBE_EVERY_S)
                continue
            if version != manifest.version:
                raise ServerLost(f"it serves version {version}, not {manifest.version}")
            return

    async def probe(self, rid: str, *, adapter: str = "") -> None:
        """Sample one token under a prefix of its own."""
        await self.client.generate(rid, [0], _PROBE, "probe", adapter=adapter)

    async def stop(self) -> None:
        """End every process of the server and wait until none is left."""
        await self.client.close()
        if not self.ended.done():
            with contextlib.suppress(OSError):
                os.write(self._reaper.stop_fd, b"x")
            await asyncio.shield(self.ended)

    def _on_status(self) -> None:
        """Read what the reaper wrote about the server's end; end of file means that the reaper is gone."""
        try:
            chunk = os.read(self._reaper.status_fd, 64)
        except BlockingIOError:
            return
        if chunk:
            self._status += chunk
            return
        self._loop.remove_reader(self._reaper.status_fd)
        os.close(self._reaper.status_fd)
        os.close(self._reaper.stop_fd)
        if self._status:
            self.ended.set_result(describe_exit(self._status.decode()))
            return
        with contextlib.suppress(OSError):  # the reaper was killed and may have left some of the group
            os.killpg(self.pid, signal.SIGKILL)
        shutil.rmtree(self._reaper.folder, ignore_errors=True)
        self.ended.set_result("the server's process reaper was killed")


def _spawn(command: list[str], spec: EngineSpec, api_key: str) -> _Reaper:
    """Start a reaper, which reports its pids within milliseconds.  Raises :class:`ServerLost`."""
    with contextlib.ExitStack() as always, contextlib.ExitStack() as undo:
        stop_read, stop_fd = os.pipe()
        always.callback(os.close, stop_read)
        undo.callback(os.close, stop_fd)
        status_fd, status_write = os.pipe()
        undo.callback(os.close, status_fd)
        with contextlib.closing(os.fdopen(status_write, "wb")) as status, spec.log.open("ab") as log:
            log.write(f"--- {time.strftime('%Y-%m-%d %H:%M:%S', time.gmtime())} UTC\n".encode())
            log.flush()
            subprocess.run(
                command,
                stdin=stop_read,
                stdout=status,
                stderr=log,
                env=server_environment(spec, api_key),
                cwd=spec.log.parent,
                start_new_session=True,
                check=False,
            )
        started = os.fsdecode(_read_line(status_fd)).rstrip("\n").split(" ", 2)
        if len(started) != 3:
            raise ServerLost("its process reaper did not start")
        undo.pop_all()
    return _Reaper(int(started[1]), Path(started[2]), stop_fd, status_fd)


def _read_line(fd: int) -> bytes:
    line = b""
    while not line.endswith(b"\n") and (byte := os.read(fd, 1)):
        line += byte
    return line


def read_log_tail(log: Path, offset: int) -> str:
    """Return the last informative lines of a log after ``offset``, without colour codes."""
    with log.open("rb") as stream:
        stream.seek(offset)
        lines = _ESCAPE.sub("", stream.read().decode(errors="replace")).splitlines()
    lines = [line.rstrip() for line in lines if any(map(str.isalnum, line)) and not line.startswith("--- ")]
    return "\n".join(f"    {line}" for line in lines[-_TAIL_LINES:])


def describe_exit(line: str) -> str:
    """Describe how the server ended, from the reaper's last line.  A subprocess that ended first explains more than the
    server's own status."""
    first, _, why = line.strip().partition(" ")
    if why:
        return f"the server was ended: {why}"
    status = int(first)
    with contextlib.suppress(ValueError):
        return f"the server was ended by {signal.Signals(status - 128).name}"
    return f"the server ended with status {status}"

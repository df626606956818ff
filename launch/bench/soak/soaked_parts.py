"""Starts what is soaked: one small run with its monitor, a pool server, a router before it, and an environment service.

Everything ends with the block: the run as by an interrupt, the servers by SIGTERM.
"""

from __future__ import annotations

import asyncio
import secrets
import sys
import tempfile
from collections.abc import AsyncGenerator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from launch.bench.coin_tasks import write_coin_tasks
from launch.bench.monitor.live_run import run_arguments
from launch.bench.server_process import serve_command
from launch.bench.tiny_recipes import build_tiny_model
from launch.processes.background_tasks import background_services
from launch.processes.child_process import run_command
from launch.processes.process_reaper import ProcessReaper, find_run_processes
from protocol.errors import InfraError
from protocol.run_directory.run_tail import RunTail
from sandbox.server.journal import StateDirectory

_STEPS = 10_000_000
"""More than any soak takes."""
_SLOTS = 4
"""Sandboxes of the pool server, and episodes of the environment service, at a time."""
_TRAINING_S, _LOOK_S, _STOP_S = 1200.0, 0.5, 120.0


@dataclass(frozen=True, slots=True)
class SoakedParts:
    run_dir: Path
    tokens: Sequence[str]
    """Tokens of the processes: the run's, the servers'."""
    monitor_url: str
    router_url: str
    environment_url: str
    state_folders: Sequence[Path]
    """Folders of the pool server and of the environment service."""

    def run_ids(self) -> Sequence[str]:
        """Return the run label of everything that these parts have on the engine."""
        pool, environment = map(StateDirectory, self.state_folders)
        return self.run_dir.name, f"pool-server-{pool.id}", f"environment-{environment.id}"

    def living(self) -> Sequence[int]:
        """Return the processes of these parts, by pid.  Blocking."""
        return sorted(process.pid for token in self.tokens for process in find_run_processes(token))


@asynccontextmanager
async def running_parts(output: Path) -> AsyncGenerator[SoakedParts]:
    """Start all parts, and yield them once the run trains.  Logs and files are in ``output``.

    Raises UserError if this machine cannot run them, InfraError if one does not start or ends early.
    """
    await asyncio.to_thread(build_tiny_model, output / "model")
    write_coin_tasks(output / "tasks")
    run_id = f"soak-{secrets.token_hex(4)}"
    arguments = run_arguments(output, _STEPS, run_id, ("monitor.enabled=true",))
    tokens = secrets.token_hex(16), secrets.token_hex(16)
    states = output / "state-pool", output / "state-environment"
    with ProcessReaper(tokens[1], Path(tempfile.mkdtemp(prefix="ls-"))):
        async with AsyncExitStack() as stack:

            async def serve(module: str, *words: str) -> str:
                serving = serve_command(module, *words, "--port", "0", stop_s=_STOP_S, log=output / f"{module}.log")
                return (await stack.enter_async_context(serving)).url

            pool_server = await serve("sandbox.server", "--state", str(states[0]), "--max-tasks", str(2 * _SLOTS))
            router = await serve("sandbox.router", "--servers", pool_server)
            environment = await serve("launch.environment", "--state", str(states[1]), "--slots", str(_SLOTS))
            run_dir = output / "runs" / run_id
            await stack.enter_async_context(background_services(_run(tokens[0], arguments, output / "run.log")))
            monitor = await _await_training(run_dir)
            yield SoakedParts(run_dir, tokens, monitor, router, environment, states)


async def _run(token: str, arguments: Sequence[str], log: Path) -> None:
    """Run until cancelled.  Raises InfraError if the run ends by itself."""
    with log.open("wb") as file:
        done = await run_command(sys.executable, "-m", "launch.bench.soak.driver", token, *arguments, log=file)
    raise InfraError(f"the run ended by itself (exit code {done.exit_code}): {log} says why")


async def _await_training(run_dir: Path) -> str:
    """Return the address of the run's monitor once it trains."""
    tail, url = RunTail(run_dir), ""
    try:
        async with asyncio.timeout(_TRAINING_S):
            while True:
                for event in await asyncio.to_thread(lambda: [*tail.iter_events()]):
                    if event["kind"] == "run.started":
                        url = str(event["url"])
                    if event["kind"] == "run.phase" and event["phase"] == "training":
                        return url.rstrip("/")
                await asyncio.sleep(_LOOK_S)
    except TimeoutError as error:
        raise InfraError(f"the run {run_dir} has not begun to train within {_TRAINING_S:g} s") from error

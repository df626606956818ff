"""``python -m sandbox.stress``: how many sandboxes this machine starts and serves, and whether each answer is right.

All sessions are alive at once before the first timed command.  Each command echoes a nonce of its own; an answer that
is not exactly that is wrong.  What exists on the daemon is listed in full before and after.  A table goes to stderr,
one JSON object to stdout, last.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import sys
import time
from dataclasses import asdict, dataclass

from protocol.errors import LongshoreError
from sandbox.engine import DockerEngine
from sandbox.host import ensure
from sandbox.pool import LABEL, PoolSettings, SandboxPool
from sandbox.session import SandboxSession
from sandbox.tasks.task import Task

_COMMAND_S = 60.0


@dataclass(frozen=True, slots=True)
class StressReport:
    sessions: int
    commands: int
    """Answered, all sessions together."""
    wrong: int
    """Answers that were not the nonce."""
    failed: int
    """Sessions that could not be started or were lost."""
    leaked: int
    """Containers of this pool, and new volumes and networks, that were there afterwards."""
    starts_per_s: float
    start_ms_mean: float
    commands_per_s: float
    command_ms_p50: float
    command_ms_p95: float
    removal_s: float

    @property
    def ok(self) -> bool:
        return not (self.wrong or self.failed or self.leaked)


class _Run:
    """One stress run's shared state."""

    def __init__(self, pool: SandboxPool, sessions: int, commands: int, seed: int) -> None:
        self.pool, self.sessions, self.commands = pool, sessions, commands
        self.random = random.Random(seed)
        self.ready, self.failed, self.wrong = 0, 0, 0
        self.all_ready = asyncio.Event()
        self.started_at = self.ready_at = self.done_at = time.perf_counter()
        self.times_ms: list[float] = []

    async def session(self) -> None:
        arrived = False
        try:
            async with self.pool.acquire(Task(id="stress", instruction="")) as session:
                await self._command(session)
                arrived = True
                self._arrive()
                await self.all_ready.wait()
                for _ in range(self.commands):
                    self.times_ms.append(await self._command(session))
                self.done_at = time.perf_counter()
        except LongshoreError as error:
            self.failed += 1
            sys.stderr.write(f"session failed: {error}\n")
            if not arrived:
                self._arrive()

    def _arrive(self) -> None:
        self.ready += 1
        if self.ready == self.sessions:
            self.ready_at = time.perf_counter()
            self.all_ready.set()

    async def _command(self, session: SandboxSession) -> float:
        nonce = f"{self.random.getrandbits(64):016x}"
        done = await session.run(f"echo {nonce}", _COMMAND_S)
        self.wrong += done.output != f"{nonce}\n" or done.exit_code != 0
        return done.ms


async def stress(sessions: int, commands: int, concurrency: int, seed: int = 0) -> StressReport:
    """Start ``sessions``, run ``commands`` in each, all at once, remove them, and account for everything."""
    host = ensure()
    name = f"stress-{os.getpid()}"
    settings = PoolSettings(pool=name, run_id=name, capacity=sessions, start_concurrency=concurrency)
    async with DockerEngine(host.docker_url) as engine:
        before = await engine.inventory()
        async with SandboxPool(settings, host) as pool:
            run = _Run(pool, sessions, commands, seed)
            async with asyncio.TaskGroup() as group:
                for _ in range(sessions):
                    group.create_task(run.session())
            statistics = pool.statistics()
        removed_at = time.perf_counter()
        after = await engine.inventory()
        left = await engine.containers({f"{LABEL}.pool": name})
    times = sorted(run.times_ms) or [0.0]
    return StressReport(
        sessions=sessions,
        commands=len(run.times_ms),
        wrong=run.wrong,
        failed=run.failed,
        leaked=len(left) + len(after.volumes - before.volumes) + len(after.networks - before.networks),
        starts_per_s=round(sessions / max(run.ready_at - run.started_at, 1e-9), 2),
        start_ms_mean=round(statistics.start_ms_mean, 1),
        commands_per_s=round(len(run.times_ms) / max(run.done_at - run.ready_at, 1e-9), 1),
        command_ms_p50=round(times[len(times) // 2], 3),
        command_ms_p95=round(times[int(len(times) * 0.95)], 3),
        removal_s=round(removed_at - run.done_at, 2),
    )


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m sandbox.stress", description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--sessions", type=int, default=32, help="alive at once")
    parser.add_argument("--commands", type=int, default=20, help="in each session")
    parser.add_argument("--concurrency", type=int, default=os.cpu_count() or 2, help="containers starting at once")
    parser.add_argument("--json", action="store_true", help="one JSON object on stdout, last")
    chosen = parser.parse_args(arguments)
    try:
        report = asyncio.run(stress(chosen.sessions, chosen.commands, chosen.concurrency))
    except LongshoreError as error:
        sys.stderr.write(f"{error}\n")
        return 2
    rows = asdict(report)
    width = max(map(len, rows))
    sys.stderr.writelines(f"{key:<{width}}  {value}\n" for key, value in rows.items())
    if chosen.json:
        sys.stdout.write(json.dumps({**rows, "ok": report.ok}) + "\n")
    return 0 if report.ok else 1


if __name__ == "__main__":
    sys.exit(main())

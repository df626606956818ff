"""A stress run from end to end: places opened, phases in order, everything closed, what is left counted.

An interrupt ends the phase that runs; what was opened is closed, the engine's lists are compared, and what was found
until then is reported.
"""

from __future__ import annotations

import asyncio
import os
import re
import secrets
import signal
import time
from collections.abc import AsyncGenerator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

from protocol.errors import LongshoreError, UserError, leaves
from sandbox.engine import DockerEngine
from sandbox.host import Host
from sandbox.leaks import left
from sandbox.stress import floor, measure
from sandbox.stress.faults import FAULTS
from sandbox.stress.faults.arena import STRUCK, Arena
from sandbox.stress.measure import WARM, Bench, Load
from sandbox.stress.metrics import Metrics
from sandbox.stress.options import Options
from sandbox.stress.places import Place, local_place, remote_place
from sandbox.stress.report import Report, Tally
from sandbox.stress.servers_own import ServersOwn
from sandbox.stress.talk import Talker
from sandbox.sweep import LABEL

_BYSTANDERS = 8
"""Sessions that go on working, and are verified, while faults are injected beside them."""
_BYSTANDERS_RATE = 20.0
_WHERE = "grep -o 'containers/[0-9a-f]\\{64\\}/' /proc/self/mountinfo | head -n 1"
"""The engine mounts files of its own folder for the container: their path has its id."""


async def stress(options: Options, host: Host, report: Report) -> None:
    """Fill ``report``.  Raises UserError where nothing can be done as asked."""
    async with DockerEngine(host.docker_url) as engine:
        before = await engine.inventory()
        own: ServersOwn | None = None
        if (metrics := _metrics(options)) is not None:
            own = ServersOwn(engine, metrics, before, int(await metrics.read("sandboxes_live")))
        steal = floor.Steal()
        try:
            async with _interruptible(report):
                await _phases(options, host, engine, report, own)
        except (LongshoreError, ExceptionGroup) as error:
            _take(error, report)
        finally:
            report.phase = "looking for what is left"
            report.steal = steal.share()
            report.leaked(await asyncio.shield(left(engine, before, kept=own and own.count)))
    report.phase = "interrupted" if report.interrupted else "done"


def _take(error: Exception, report: Report) -> None:
    """What was raised on purpose is part of the report, unless the person can mend it."""
    for each in leaves(error):
        if isinstance(each, UserError):
            raise each from error
    _note(error, report)


def _note(error: Exception, report: Report) -> None:
    """What was raised on purpose is a failure of the run; anything else goes on."""
    found = list(leaves(error))
    if not all(isinstance(each, LongshoreError) for each in found):
        raise error
    for each in found:
        report.failed(f"{report.phase}: {type(each).__name__}: {each}")


@asynccontextmanager
async def _interruptible(report: Report) -> AsyncGenerator[None]:
    """SIGINT and SIGTERM end the block, once; what it holds is closed as it is left."""
    loop = asyncio.get_running_loop()
    signals = (signal.SIGINT, signal.SIGTERM)

    def interrupt() -> None:
        if not report.interrupted:
            report.interrupted = True
            scope.reschedule(loop.time())

    scope = asyncio.timeout(None)
    try:
        async with scope:
            for each in signals:
                loop.add_signal_handler(each, interrupt)
            yield
    except TimeoutError:
        if not report.interrupted:
            raise
    finally:
        for each in signals:
            loop.remove_signal_handler(each)


async def _phases(options: Options, host: Host, engine: DockerEngine, report: Report, own: ServersOwn | None) -> None:
    run = secrets.token_hex(4)
    at_once = os.cpu_count() or 2
    async with _place(options, host, f"stress-{os.getpid()}-{run}", at_once) as place:
        bench = Bench(report, place, run, at_once)
        report.phase = "first session"
        like = await _example(bench, engine)
        if own is not None:
            own.pool = like["Config"]["Labels"][f"{LABEL}.pool"]
        report.phase = "acquire"
        await measure.acquire(bench)
        report.phase = "start"
        async with measure.population(bench, floor.StartFloor(engine, like), options.sessions) as talkers:
            if not talkers:
                return
            report.phase = "one command at a time"
            await measure.one_at_a_time(bench, talkers, engine.url, await _container(talkers[0], engine))
            report.phase = "load"
            until = time.monotonic() + options.duration_s
            await Load(bench, options.commands, options.rate).run(talkers, lambda: time.monotonic() > until)
            if options.faults:
                await _faults(options, host, bench, talkers)
            report.phase = "reading back what was executed"
            await measure.check_ledgers(report, talkers)
            report.phase = "closing"


def _place(options: Options, host: Host, name: str, at_once: int) -> AbstractAsyncContextManager[Place]:
    needed = options.sessions + (STRUCK if options.faults else 0)
    if (metrics := _metrics(options)) is not None:
        return remote_place(metrics, needed)
    return local_place(host, name, needed + WARM, at_once)


def _metrics(options: Options) -> Metrics | None:
    """Of the server that is asked; None for the library."""
    return Metrics(options.server, options.token) if options.server else None


async def _example(bench: Bench, engine: DockerEngine) -> dict[str, Any]:
    """What the engine says of a sandbox's container.  Raises UserError when the sandboxes are not on ``engine``."""
    talker = await bench.talker(0)
    try:
        return await engine.inspect(await _container(talker, engine))
    finally:
        await asyncio.shield(talker.seat.close())


async def _container(talker: Talker, engine: DockerEngine) -> str:
    if talker.seat.container:
        return talker.seat.container
    found = re.search(r"[0-9a-f]{64}", (await talker.ask(_WHERE)).output)
    if found is None or found[0] not in (await engine.inventory()).containers:
        raise UserError(
            f"the server's sandboxes are not on the engine at {engine.url}, which is needed for floors and leaks: "
            "set DOCKER_HOST to the server's engine"
        )
    return found[0]


async def _faults(options: Options, host: Host, bench: Bench, talkers: list[Talker]) -> None:
    """One kind after another, while some sessions go on working."""
    done = False
    load = Load(bench, options.commands, _BYSTANDERS_RATE)
    async with Arena(bench, host, _metrics(options)) as arena, asyncio.TaskGroup() as group:
        group.create_task(load.run(talkers[:_BYSTANDERS], lambda: done, timed=False))
        try:
            for name in options.faults:
                bench.report.phase = f"fault {name}"
                tally = bench.report.faults[name] = Tally()
                try:
                    await FAULTS[name].inject(arena, tally)
                except (LongshoreError, ExceptionGroup) as error:
                    _note(error, bench.report)  # it could not be injected; the others can
        finally:
            done = True

"""Runs a stress run from end to end: sources opened, phases in order, everything closed, leaks counted.

An interrupt ends the current phase; everything open is closed, the engine's lists are compared, and the findings so far
are reported.
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
from functools import partial
from typing import Any

from protocol.errors import LongshoreError, UserError, iterate_leaf_errors
from sandbox.docker.engine import DockerEngine
from sandbox.docker.labels import POOL_LABEL
from sandbox.docker.leaks import inventory_of_others, inventory_of_strangers, wait_for_leaks
from sandbox.host_record import SandboxHost
from sandbox.stress import floor, phases
from sandbox.stress.checked_session import CheckedSession
from sandbox.stress.command_load import CommandLoad, check_ledgers
from sandbox.stress.faults import FAULTS
from sandbox.stress.faults.fault_context import MAX_TARGETS, FaultContext
from sandbox.stress.options import StressOptions
from sandbox.stress.phases import WARM_SANDBOXES, StressContext
from sandbox.stress.report import FaultTally, StressReport
from sandbox.stress.sandbox_sources import SandboxSource, open_pool_source, open_server_source
from sandbox.stress.server_containers import ServerOwnContainers
from sandbox.stress.server_metrics import PoolServerMetrics

_BYSTANDERS = 8
"""Number of sessions that keep running commands, and are verified, while faults are injected."""
_BYSTANDERS_RATE = 20.0
_WHERE = "grep -o 'containers/[0-9a-f]\\{64\\}/' /proc/self/mountinfo | head -n 1"
"""Command that prints the container's id: the engine mounts files of a folder whose path contains it."""


async def run_stress(options: StressOptions, host: SandboxHost, report: StressReport) -> None:
    """Fill ``report``. Raises UserError if the run cannot start."""
    async with DockerEngine(host.docker_url) as engine:
        before = await engine.inventory()
        own: ServerOwnContainers | None = None
        if (metrics := _metrics(options)) is not None:
            own = ServerOwnContainers(engine, metrics, before, int(await metrics.read("sandboxes_live")))
        steal = floor.CpuStealMeter()
        try:
            async with _interruptible(report):
                await _phases(options, host, engine, report, own)
        except (LongshoreError, ExceptionGroup) as error:
            _take(error, report)
        finally:
            report.phase = "looking for leaks"
            report.steal = steal.share()
            others = partial(inventory_of_others if own is None else inventory_of_strangers, engine)
            finding = wait_for_leaks(engine, before, count_reserved=own and own.count, list_others=others)
            report.add_leaks(await asyncio.shield(finding))
    report.phase = "interrupted" if report.interrupted else "done"


def _take(error: Exception, report: StressReport) -> None:
    """Report one of longshore's errors, unless it is a UserError, which is raised."""
    for each in iterate_leaf_errors(error):
        if isinstance(each, UserError):
            raise each from error
    _note(error, report)


def _note(error: Exception, report: StressReport) -> None:
    """Count one of longshore's errors as a failure of the run; raise any other."""
    found = list(iterate_leaf_errors(error))
    if not all(isinstance(each, LongshoreError) for each in found):
        raise error
    for each in found:
        report.add_failure(f"{report.phase}: {type(each).__name__}: {each}")


@asynccontextmanager
async def _interruptible(report: StressReport) -> AsyncGenerator[None]:
    """SIGINT and SIGTERM end the block, once; everything that it holds is closed."""
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


async def _phases(
    options: StressOptions,
    host: SandboxHost,
    engine: DockerEngine,
    report: StressReport,
    own: ServerOwnContainers | None,
) -> None:
    run = secrets.token_hex(4)
    at_once = os.cpu_count() or 2
    async with _open_source(options, host, f"stress-{os.getpid()}-{run}", at_once) as source:
        stress = StressContext(report, source, run, at_once)
        report.phase = "first session"
        like = await _example(stress, engine)
        if own is not None:
            own.pool = like["Config"]["Labels"][POOL_LABEL]
        report.phase = "acquire"
        await phases.measure_acquire(stress)
        report.phase = "start"
        async with phases.start_sessions(stress, floor.StartFloor(engine, like), options.sessions) as checked_sessions:
            if not checked_sessions:
                return
            report.phase = "one command at a time"
            await phases.measure_single_commands(
                stress, checked_sessions, engine.url, await _container(checked_sessions[0], engine)
            )
            report.phase = "load"
            until = time.monotonic() + options.duration_s
            await CommandLoad(stress, options.commands, options.rate).run(
                checked_sessions, lambda: time.monotonic() > until
            )
            if options.faults:
                await _faults(options, host, stress, checked_sessions)
            report.phase = "reading back the ledgers"
            await check_ledgers(report, checked_sessions)
            report.phase = "closing"


def _open_source(
    options: StressOptions, host: SandboxHost, name: str, at_once: int
) -> AbstractAsyncContextManager[SandboxSource]:
    needed = options.sessions + (MAX_TARGETS if options.faults else 0)
    if (metrics := _metrics(options)) is not None:
        return open_server_source(metrics, needed)
    return open_pool_source(host, name, needed + WARM_SANDBOXES, at_once)


def _metrics(options: StressOptions) -> PoolServerMetrics | None:
    """Return the server's metrics; None when the library is used."""
    return PoolServerMetrics(options.server, options.token) if options.server else None


async def _example(stress: StressContext, engine: DockerEngine) -> dict[str, Any]:
    """Return the engine's description of a sandbox's container. Raises UserError if the sandboxes are on another
    one."""
    checked = await stress.open_session(0)
    try:
        return await engine.inspect(await _container(checked, engine))
    finally:
        await asyncio.shield(checked.sandbox.close())


async def _container(checked: CheckedSession, engine: DockerEngine) -> str:
    if checked.sandbox.container:
        return checked.sandbox.container
    found = re.search(r"[0-9a-f]{64}", (await checked.run_checked(_WHERE)).output)
    if found is None or found[0] not in (await engine.inventory()).containers:
        raise UserError(
            f"the server's sandboxes are not on the engine at {engine.url}, which is needed for floors and leaks: "
            "set DOCKER_HOST to the server's engine"
        )
    return found[0]


async def _faults(
    options: StressOptions, host: SandboxHost, stress: StressContext, checked_sessions: list[CheckedSession]
) -> None:
    """Inject one kind after another, while some sessions keep running commands."""
    done = False
    load = CommandLoad(stress, options.commands, _BYSTANDERS_RATE)
    async with FaultContext(stress, host, _metrics(options)) as context, asyncio.TaskGroup() as group:
        group.create_task(load.run(checked_sessions[:_BYSTANDERS], lambda: done, timed=False))
        try:
            for name in options.faults:
                stress.report.phase = f"fault {name}"
                tally = stress.report.faults[name] = FaultTally()
                try:
                    await FAULTS[name].inject(context, tally)
                except (LongshoreError, ExceptionGroup) as error:
                    _note(error, stress.report)  # it could not be injected; the others can
        finally:
            done = True

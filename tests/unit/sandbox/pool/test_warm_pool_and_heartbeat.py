"""If these fail, warm sandboxes that end slowly delay the heartbeat of live ones, or are gone when a task comes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sandbox.docker.container_spec import ContainerLimits, ContainerSpec
from sandbox.pool import warm_pool
from sandbox.pool.heartbeat import SessionHeartbeat
from sandbox.pool.settings import PoolSettings
from sandbox.pool.warm_pool import WarmPool
from sandbox.pool.warm_sandboxes import ContainerKind
from tests.support.fakes.fake_clock import FakeClock

KIND, OTHER = (ContainerKind(image, "/app", ContainerLimits()) for image in ("image", "other"))
SETTINGS = PoolSettings("p", "r", 2, warm_per_kind=2, warm_max_age_s=600.0)


class StartedSandbox:
    """A sandbox whose end waits for ``may_end``."""

    may_end = asyncio.Event()
    count = 0

    def __init__(self, image: str = "") -> None:
        StartedSandbox.count += 1
        self.image = image
        self.alive, self.spec, self.extended = True, None, 0
        self.beaten = asyncio.Event()

    def extend(self, seconds: float) -> None:
        assert seconds > 0
        self.extended += 1
        if self.extended > 5:
            self.beaten.set()

    async def close(self) -> None:
        self.alive = False
        await StartedSandbox.may_end.wait()


@pytest.fixture(autouse=True)
def starts(monkeypatch: pytest.MonkeyPatch) -> None:
    StartedSandbox.may_end, StartedSandbox.count = asyncio.Event(), 0

    async def start(engine: object, spec: ContainerSpec, *_: object) -> StartedSandbox:
        return StartedSandbox(spec.image)

    monkeypatch.setattr(warm_pool.SandboxSession, "start", start)


@asynccontextmanager
async def filled(clock: FakeClock, settings: PoolSettings = SETTINGS) -> AsyncGenerator[Any]:
    def spec(kind: ContainerKind, max_s: float) -> ContainerSpec:
        return ContainerSpec(kind.image, Path("/toolchain"), {})

    engine: Any = None
    async with WarmPool(engine, settings, spec, clock) as made:
        made.refill(KIND)
        await made.wait_until_filled()
        yield made
        StartedSandbox.may_end.set()


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(30):
        while not holds():  # noqa: ASYNC110  seen from outside only
            await asyncio.sleep(0)


async def test_live_sessions_are_kept_alive_while_warm_ones_do_not_end():
    clock = FakeClock()
    async with filled(clock) as warm:
        live: Any = StartedSandbox()
        heartbeat = SessionHeartbeat(0.003, warm)
        async with heartbeat.running():
            heartbeat.watch(live, 3600.0)
            clock.now = 601.0
            async with asyncio.timeout(30):
                await live.beaten.wait()
            assert len(warm) == 0, "the warm ones were not too old"
            heartbeat.unwatch(live)


async def test_warm_sandboxes_and_verifiers_also_survive_a_daemon_restart():
    clock = FakeClock()
    async with filled(clock) as warm:
        heartbeat = SessionHeartbeat(60.0, warm)
        spec = ContainerSpec("image", Path("/toolchain"), {}, auto_remove=False)
        live, verifier, ready, other = (_with(spec) for _ in range(4))
        other.spec = replace(spec, auto_remove=True)
        heartbeat.watch(live, 3600.0)
        for each in (ready, other):
            heartbeat.resume_when_broken(each)
        assert heartbeat.writable_sessions() == (live,)
        with live.watch_verifier(verifier):
            assert heartbeat.writable_sessions() == (live, verifier)
            assert [each.on_stream_broken is not None for each in (live, verifier, ready, other)] == [
                True,
                True,
                True,
                False,
            ]
        assert (heartbeat.writable_sessions(), verifier.on_stream_broken) == ((live,), None)


def _with(spec: ContainerSpec) -> Any:
    made: Any = StartedSandbox()
    made.spec, made.on_stream_broken = spec, None
    return made


async def test_every_sandbox_started_for_the_warm_pool_is_announced():
    seen: list[object] = []
    engine: Any = None
    async with WarmPool(engine, SETTINGS, lambda kind, _: ContainerSpec(kind.image, Path("/toolchain"), {})) as made:
        made.on_warm_started = seen.append
        made.refill(KIND)
        await made.wait_until_filled()
        assert seen == list(made)
        StartedSandbox.may_end.set()


@pytest.mark.parametrize("dead", [False, True])
async def test_an_unused_warm_pool_is_refilled_when_its_sandboxes_expire_or_die(dead: bool):
    clock = FakeClock()
    async with filled(clock) as warm:
        before = list(warm)
        assert len(before) == 2
        for each in before:
            each.alive = not dead
        clock.now = 1.0 if dead else 601.0
        warm.maintain()
        assert warm.is_full, "a place was given away before what is in it had ended"
        StartedSandbox.may_end.set()
        await until(lambda: len(warm) == 2)
        assert not set(before) & set(warm)


async def test_a_warm_sandbox_being_replaced_counts_and_is_not_replaced_twice():
    clock = FakeClock()
    settings = PoolSettings("p", "r", 8, warm_per_kind=2)
    async with filled(clock, settings) as warm:
        clock.now = 601.0
        warm.maintain()
        warm.refill(KIND)
        assert warm.filling == 0
        StartedSandbox.may_end.set()
        await until(lambda: len(warm) == 2)
        await warm.wait_until_filled()
        assert len(warm) == 2


async def test_a_kind_not_requested_for_long_is_not_kept_warm():
    clock = FakeClock()
    settings = PoolSettings("p", "r", 4, warm_per_kind=2)
    async with filled(clock, settings) as warm:
        StartedSandbox.may_end.set()
        clock.now = 7000.0
        warm.refill(OTHER)
        await warm.wait_until_filled()
        clock.now = 7201.0
        warm.maintain()
        await until(lambda: not warm.is_full)
        for _ in range(20):
            await asyncio.sleep(0)
        assert {each.image for each in warm} == {OTHER.image}


async def test_a_closing_pool_starts_no_more_sandboxes():
    clock = FakeClock()
    async with filled(clock) as warm:
        clock.now = 601.0
        warm.maintain()
    assert (StartedSandbox.count, warm.filling, warm.is_full) == (2, 0, False)

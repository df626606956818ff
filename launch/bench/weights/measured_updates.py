"""Measures weight updates of engines that are decoding: by each route and by the lower bound, in turns."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial

from actors.engines.messages import GenerateRequest, WeightLoadReport
from actors.engines.weights.loader import WeightLoader
from actors.weight_transport.host_cache import HostWeightCache
from launch.bench.weights.instrumented_engine import InstrumentedEngine
from launch.bench.weights.weight_versions import VersionSequence
from launch.weight_sync.rolling_update import RollingUpdate
from protocol.weights import NO_VERSION, WeightManifest, WeightVersion

_PROMPT_TOKENS = 20
_DEADLINE_S = 600.0
_SHARE = 0.5
GAP_S = 0.5
"""Seconds between two updates, in which decoding recovers."""


@dataclass(slots=True)
class DecodingWindow:
    """Spans of decoding, and the tokens sampled in them."""

    seconds: float = 0.0
    tokens: int = 0

    @property
    def rate(self) -> float:
        """Tokens per second."""
        return self.tokens / self.seconds if self.seconds else 0.0

    def add(self, other: DecodingWindow) -> None:
        self.seconds += other.seconds
        self.tokens += other.tokens


@dataclass(slots=True)
class UpdateTimings:
    """The timings of all updates of one kind, in milliseconds."""

    stall_ms: list[float] = field(default_factory=list[float])
    """Pause of each engine."""
    update_ms: list[float] = field(default_factory=list[float])
    """Time from the publication until the last engine resumed."""
    copy_ms: list[float] = field(default_factory=list[float])
    """Part of that time until the version was on the engines' host."""
    window: DecodingWindow = field(default_factory=DecodingWindow)


@dataclass(frozen=True, slots=True)
class WeightRoute:
    """One route of new weights into the engines."""

    name: str
    loaders: Sequence[WeightLoader]
    """Weight loader of each engine."""
    copies: HostWeightCache | None = None
    """Copier to the engines' host; None if they read the learner's folder."""


@dataclass(slots=True, kw_only=True)
class LoadedEngines:
    """Engines under load, of which at most half are updated at a time, as in a run."""

    engines: Sequence[InstrumentedEngine]
    loss: float
    """See :class:`~launch.weight_sync.rolling_update.RollingUpdate`."""
    versions: VersionSequence
    say: Callable[[str], None]
    _served: WeightVersion = NO_VERSION

    @asynccontextmanager
    async def keep_decoding(self, requests: int, tokens: int) -> AsyncGenerator[None]:
        """Keep a number of requests in flight on each engine, each for the same number of tokens."""
        async with asyncio.TaskGroup() as group:
            tasks = [
                group.create_task(_sample_forever(engine, slot, tokens, tokens * (slot + 1) // requests))
                for engine in self.engines
                for slot in range(requests)
            ]
            try:
                yield
            finally:
                for task in tasks:
                    task.cancel()

    @property
    def sampled_tokens(self) -> int:
        return sum(engine.sampled_tokens for engine in self.engines)

    async def measure_decoding(self, seconds: float) -> DecodingWindow:
        """Measure decoding without updates."""
        before, begun = self.sampled_tokens, time.monotonic()
        await asyncio.sleep(seconds)
        return DecodingWindow(time.monotonic() - begun, self.sampled_tokens - before)

    async def await_full_caches(self, slots: int) -> None:
        """Wait until each engine has sampled as much as its cache holds, as it is faster while it evicts nothing."""
        while min(engine.sampled_tokens for engine in self.engines) < slots:  # noqa: ASYNC110  the servers tell no event
            await asyncio.sleep(GAP_S)

    async def measure_updates(
        self, count: int, routes: Sequence[WeightRoute]
    ) -> tuple[dict[str, UpdateTimings], list[float], DecodingWindow]:
        """Return the updates of each route, the pauses of the lower bound, and the decoding before each update; each
        route comes first in turn, after its one-time set-up.
        """
        updates, floor, before = {route.name: UpdateTimings() for route in routes}, list[float](), DecodingWindow()

        async def by_hand() -> None:
            manifest = self.versions.next_version("by hand")
            pace = RollingUpdate(len(self.engines), _SHARE, self.loss)
            async with asyncio.TaskGroup() as group:
                for engine in self.engines:
                    group.create_task(_update_engine_directly(engine, manifest, pace, floor))
            self._served = manifest.version

        kinds: list[Callable[[], Awaitable[None]]] = [
            by_hand,
            *(partial(self._update, route, updates[route.name]) for route in routes),
        ]
        for route in routes:
            await self._update(route, UpdateTimings())
        for number in range(count):
            for kind in (*kinds[number % len(kinds) :], *kinds[: number % len(kinds)]):
                before.add(await self.measure_decoding(GAP_S))
                await kind()
            stalls = ", ".join(f"{name} {of.stall_ms[-1]:.0f}" for name, of in updates.items())
            self.say(f"round {number + 1}: stood still for {stalls} ms, {floor[-1]:.0f} by hand")
        return updates, floor, before

    async def measure_drained_updates(self, count: int) -> list[float]:
        """Measure updates that start when requests that were just sent are being sampled."""
        engine, found = self.engines[0], list[float]()
        for _ in range(count):
            found.append(await engine.update_after_drain(self.versions.next_version("drained")))
            tokens = engine.sampled_tokens
            while engine.sampled_tokens == tokens:  # noqa: ASYNC110  the servers tell no event
                await asyncio.sleep(GAP_S)
        return found

    async def _update(self, route: WeightRoute, updates: UpdateTimings) -> None:
        manifest = self.versions.next_version(route.name)
        before, begun = self.sampled_tokens, time.monotonic()
        if route.copies is not None:
            manifest = await route.copies.fetch_version(manifest, self._served)
            updates.copy_ms.append((time.monotonic() - begun) * 1000)
        pace = RollingUpdate(len(self.engines), _SHARE, self.loss)
        async with asyncio.TaskGroup() as group:
            for engine, loader in zip(self.engines, route.loaders, strict=True):
                group.create_task(_update_engine(engine, loader, manifest, pace, updates))
        seconds = time.monotonic() - begun
        updates.update_ms.append(seconds * 1000)
        updates.window.add(DecodingWindow(seconds, self.sampled_tokens - before))
        self._served = manifest.version


async def _update_engine(
    engine: InstrumentedEngine,
    loader: WeightLoader,
    manifest: WeightManifest,
    pace: RollingUpdate,
    updates: UpdateTimings,
) -> None:
    """Update an engine as a run's weight manager does."""
    await engine.stage_with(loader, manifest, _DEADLINE_S)
    async with pace.update_slot() as took:
        report = await engine.load_weights(manifest, _DEADLINE_S)
        took(report)
    updates.stall_ms.append(report.pause_ms)


async def _update_engine_directly(
    engine: InstrumentedEngine, manifest: WeightManifest, pace: RollingUpdate, floor: list[float]
) -> None:
    """Update an engine directly, with the same distance from the other engines as a regular update."""
    async with pace.update_slot() as took:
        stall_ms = await engine.update_directly(manifest)
        took(
            WeightLoadReport(
                version=manifest.version, pause_ms=stall_ms, paused_requests=1, load_ms=stall_ms, prefetch_ms=0.0
            )
        )
    floor.append(stall_ms)


async def _sample_forever(engine: InstrumentedEngine, slot: int, tokens: int, first: int) -> None:
    """Sample forever; the first requests have different lengths, so that they do not end together."""
    for count in itertools.chain([first], itertools.repeat(tokens)):
        await engine.generate(
            GenerateRequest(
                input_ids=[slot] * _PROMPT_TOKENS,
                max_new_tokens=count,
                temperature=1.0,
                stop_token_ids=(),
                seed=None,
                greedy=False,
                session=f"bench-{slot}",
                deadline_s=_DEADLINE_S,
            )
        )

"""``longshore bench weights``: measure weight updates of two engines that are decoding.

Two servers of a model with ten million parameters in bfloat16, as a run starts them, always have requests in flight.
Updates take turns: each route, and as a lower bound the server's own pause, load and resume calls.  The weights are a
learner's before and after one step.  Then sessions with long histories talk to one server that gets new weights, by
each rule for cached prefixes.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median, quantiles
from typing import Annotated, Literal

from actors.engines.server.process import RESERVED_TOKENS
from actors.engines.settings import EngineSettings, EngineSpec, PrefixReuse
from actors.engines.weights.broadcast_loader import BroadcastWeightLoader
from actors.engines.weights.loader import FileWeightLoader
from actors.engines.weights.tensor_loader import TensorWeightLoader
from actors.weight_transport.host_cache import HostWeightCache, HostWeightCacheSettings
from actors.weight_transport.sender import WeightSender
from actors.weight_transport.source import WeightSource
from launch.bench.weights.instrumented_engine import InstrumentedEngine
from launch.bench.weights.kv_reuse import ROOM_TOKENS, HistoryReuse
from launch.bench.weights.kv_reuse import measure_kv_reuse as measure_reuse
from launch.bench.weights.measured_updates import DecodingWindow, LoadedEngines, UpdateTimings, WeightRoute
from launch.bench.weights.weight_versions import CONTEXT_TOKENS, VersionSequence, delta_bytes_share, publish_steps
from protocol.cli.arguments import CommandArguments, JsonFlag, comma_separated, option
from protocol.cli.output import error_console
from protocol.errors import UserError
from protocol.events import JsonValue
from protocol.weights import WeightManifest

RATE, HIGHER_RATE = 1e-6, 1e-5
"""Learning rates of the measured steps."""
_SHARE = 0.1
"""Maximum size of a delta at :data:`RATE`, as a share of the version's bytes."""
_CONTEXT = CONTEXT_TOKENS - 8
"""Context length; SGLang reserves six positions."""
_PROMPT_ROOM = 32
_START_S = 900.0
_GPU_SHARE = 0.6
"""Share of a GPU's memory for all servers on it; a bucket of weights needs space too."""
_LONG = 4 * 1024
"""Number of history tokens from which a single session runs, for a few updates."""
_LONG_UPDATES = 3
_SESSIONS = 2
"""Number of sessions with shorter histories, which a CPU prefills in seconds."""
_LONGEST = 128 * 1024
PREFIX_REUSE_RULES: tuple[PrefixReuse, ...] = ("version", "session")


@dataclass(frozen=True, slots=True)
class WeightBenchmarkOptions:
    updates: int
    requests: int
    tokens: int
    engines: int
    duration_s: float
    drains: int
    histories: tuple[int, ...]
    """Number of tokens with which a session starts."""
    device: Literal["cpu", "cuda"]
    max_update_overhead: float


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightBenchmarkReport:
    model_bytes: int
    routes: dict[str, UpdateTimings]
    floor_ms: float
    share: float
    higher_share: float
    before: DecodingWindow
    after: DecodingWindow
    drained_ms: float
    reuse: dict[int, dict[PrefixReuse, HistoryReuse]]
    """Number of history tokens → rule → result."""

    @property
    def passed(self) -> bool:
        """Whether a delta is small.  Times are no promise, as they depend on the machine."""
        return self.share <= _SHARE

    def as_json(self) -> dict[str, JsonValue]:
        full, shares = self.routes["full"], {"bytes_share": self.share, "bytes_share_1e-5": self.higher_share}
        result: dict[str, JsonValue] = {"model_bytes": self.model_bytes, "updates": len(full.update_ms)}
        result |= {name: _times(updates) for name, updates in self.routes.items()}
        result["delta"] = {name: round(share, 5) for name, share in shares.items()} | _times(self.routes["delta"])
        rates: dict[str, JsonValue] = {name: round(updates.window.rate, 1) for name, updates in self.routes.items()}
        measured: dict[str, JsonValue] = {
            "floor_ms": round(self.floor_ms, 2),
            "stall_vs_floor": round(median(full.stall_ms) / self.floor_ms, 3),
            "tokens_per_s": {
                "before": round(self.before.rate, 1),
                "during": rates["full"],
                "after": round(self.after.rate, 1),
                "during_by_route": rates,
            },
            "during_vs_before": round(full.window.rate / self.before.rate, 3) if self.before.tokens else None,
            "drained_update_ms": round(self.drained_ms, 2),
            "prefix_reuse": {
                f"{history // 1024}k": {rule: reuse.as_json() for rule, reuse in by_rule.items()}
                for history, by_rule in self.reuse.items()
            },
        }
        return result | measured


def _times(updates: UpdateTimings) -> dict[str, JsonValue]:
    result: dict[str, JsonValue] = {
        "stall_ms_p50": round(median(updates.stall_ms), 2),
        "stall_ms_p95": round(_p95(updates.stall_ms), 2),
        "update_ms": round(median(updates.update_ms), 2),
    }
    return result | ({"apply_ms": round(median(updates.copy_ms), 2)} if updates.copy_ms else {})


class WeightsArguments(CommandArguments):
    """Measure the cost of weight updates for engines that are decoding."""

    updates: Annotated[int, option("N")] = 50
    """Weight updates of each kind."""
    engines: Annotated[int, option("N")] = 2
    """Number of SGLang servers."""
    requests: Annotated[int, option("N")] = 8
    """Concurrent requests per server."""
    tokens: Annotated[int, option("N")] = 900
    """Tokens of each request."""
    duration_s: Annotated[float, option("S")] = 15.0
    """Seconds of measurement after the updates."""
    drains: Annotated[int, option("N")] = 3
    """Number of loads without a pause."""
    device: Annotated[Literal["cpu", "cuda"], option()] = "cpu"
    """Device of the servers; on cuda they share one GPU."""
    max_update_overhead: Annotated[float, option("SHARE")] = EngineSettings().max_update_overhead
    """Value of engine.max_update_overhead; 1: updates are not spread."""
    histories: Annotated[tuple[int, ...], comma_separated("K,…"), option()] = (2, 32)
    """History lengths in thousands (1,024) of tokens, for the rules of cached prefixes; above 4 one session and three
    updates; empty for none.
    """
    as_json: JsonFlag = False


def parse_options(given: WeightsArguments) -> WeightBenchmarkOptions:
    """Check the arguments.  Raises UserError."""
    histories = tuple(1024 * each for each in given.histories)
    options = WeightBenchmarkOptions(
        given.updates,
        given.requests,
        given.tokens,
        given.engines,
        given.duration_s,
        given.drains,
        histories,
        given.device,
        given.max_update_overhead,
    )
    most = _CONTEXT - _PROMPT_ROOM
    if min(options.updates, options.requests, options.engines, options.drains) < 1 or options.duration_s <= 0:
        raise UserError("--updates, --engines, --requests and --drains are 1 or more, --duration-s above 0")
    if not 0 < options.max_update_overhead <= 1:
        raise UserError(f"--max-update-overhead {options.max_update_overhead:g} is not a share above 0 and up to 1")
    if not all(1024 <= history <= _LONGEST for history in histories):
        raise UserError(f"--histories are 1 to {_LONGEST // 1024}")
    if not 1 <= options.tokens <= most:
        raise UserError(f"--tokens {options.tokens} does not fit the model's context: write 1 to {most}")
    return options


async def measure_weights(options: WeightBenchmarkOptions) -> WeightBenchmarkReport:
    """Run the benchmark.  Raises InfraError if an engine does not start, refuses a version, or is lost."""
    say = error_console().print
    with tempfile.TemporaryDirectory(prefix="ls-bench-") as name:
        folder = Path(name)
        say("one step of the learner at each learning rate")
        context = max(options.histories, default=0) + ROOM_TOKENS + RESERVED_TOKENS
        steps = await asyncio.to_thread(publish_steps, folder, (RATE, HIGHER_RATE), context)
        share, higher = [await delta_bytes_share(steps[rate]) for rate in (RATE, HIGHER_RATE)]
        say(f"a delta is {share:.2%} of the bytes at {RATE:g}, {higher:.2%} at {HIGHER_RATE:g}")
        versions = VersionSequence(folder / "weights", steps[RATE])
        async with _engines(folder, options, first := versions.next_version("first")) as engines:
            loaded = LoadedEngines(engines=engines, loss=options.max_update_overhead, versions=versions, say=say)
            async with loaded.keep_decoding(options.requests, options.tokens):
                await loaded.await_full_caches(_cache_tokens(options))
                routes, floor, before = await loaded.measure_updates(
                    options.updates, _routes(folder, engines, options.device)
                )
                after = await loaded.measure_decoding(options.duration_s)
                drained = await loaded.measure_drained_updates(options.drains)
        reuse: dict[int, dict[PrefixReuse, HistoryReuse]] = {history: {} for history in options.histories}
        for rule in PREFIX_REUSE_RULES if options.histories else ():
            say(f"sessions whose prefixes are kept by the rule {rule}")
            for history, found in (await _measure_kv_reuse(folder, options, versions, rule)).items():
                reuse[history][rule] = found
        return WeightBenchmarkReport(
            model_bytes=first.bytes,
            routes=routes,
            floor_ms=median(floor),
            share=share,
            higher_share=higher,
            before=before,
            after=after,
            drained_ms=median(drained),
            reuse=reuse,
        )


def _routes(folder: Path, engines: Sequence[InstrumentedEngine], device: Literal["cpu", "cuda"]) -> list[WeightRoute]:
    """Return the routes that a run can choose, with the learner and the engines on one host."""

    def copies(name: str, *, broadcast: bool) -> HostWeightCache:
        settings = HostWeightCacheSettings(
            name=name, run_dir=folder, node="node-1", folder=folder / "copies" / name, broadcast=broadcast
        )
        return HostWeightCache(settings, WeightSource(hosts=1))

    files, sender = (
        [FileWeightLoader()] * len(engines),
        WeightSender("127.0.0.1", "cpu"),
    )
    return [
        WeightRoute("full", files),
        WeightRoute("delta", files, copies("delta", broadcast=False)),
        WeightRoute("broadcast", files, copies("broadcast", broadcast=True)),
        WeightRoute("tensors", [TensorWeightLoader(device, 1)] * len(engines)),
        WeightRoute("direct", [BroadcastWeightLoader(f"engine-{index}", 1, sender) for index in range(len(engines))]),
    ]


async def _measure_kv_reuse(
    folder: Path, options: WeightBenchmarkOptions, versions: VersionSequence, rule: PrefixReuse
) -> dict[int, HistoryReuse]:
    """Return number of history tokens → results on one engine."""
    context = max(options.histories) + ROOM_TOKENS
    slots = max(history * sessions for history, sessions in zip(options.histories, _sessions(options), strict=True))
    settings = _engine_settings(options).model_copy(
        update={
            "max_total_tokens": 2 * slots + context,
            "prefix_reuse": rule,
            "stall_timeout_s": _START_S,  # a busy CPU prefills a long history for minutes
        }
    )
    spec = replace(_engine_spec(folder, f"engine-{rule}", settings), context_length=context)
    async with _started([InstrumentedEngine(spec)], versions.next_version("histories")) as (engine,):
        return {
            history: await measure_reuse(
                engine,
                versions,
                history=history,
                sessions=sessions,
                updates=min(options.updates, _LONG_UPDATES) if history > _LONG else options.updates,
            )
            for history, sessions in zip(options.histories, _sessions(options), strict=True)
        }


def _sessions(options: WeightBenchmarkOptions) -> list[int]:
    """Return history length → number of concurrent sessions."""
    return [1 if history > _LONG else _SESSIONS for history in options.histories]


@asynccontextmanager
async def _engines(
    folder: Path, options: WeightBenchmarkOptions, first: WeightManifest
) -> AsyncGenerator[list[InstrumentedEngine]]:
    settings = _engine_settings(options)
    engines = [
        InstrumentedEngine(_engine_spec(folder, f"engine-{index}", settings)) for index in range(options.engines)
    ]
    async with _started(engines, first):
        yield engines


@asynccontextmanager
async def _started(
    engines: list[InstrumentedEngine], first: WeightManifest
) -> AsyncGenerator[list[InstrumentedEngine]]:
    try:
        async with asyncio.TaskGroup() as group:
            for engine in engines:
                group.create_task(engine.start(first))
        yield engines
    finally:
        async with asyncio.TaskGroup() as group:
            for engine in engines:
                group.create_task(engine.stop())


def _cache_tokens(options: WeightBenchmarkOptions) -> int:
    """Number of tokens with which a session starts."""
    return 2 * options.requests * (options.tokens + _PROMPT_ROOM)


def _engine_spec(folder: Path, name: str, settings: EngineSettings) -> EngineSpec:
    model = str(folder / "model")
    return EngineSpec(settings=settings, name=name, run_dir=folder, model_path=model, context_length=_CONTEXT)


def _engine_settings(options: WeightBenchmarkOptions) -> EngineSettings:
    return EngineSettings(
        max_total_tokens=_cache_tokens(options),
        max_running=options.requests,
        device=options.device,
        mem_fraction_static=_GPU_SHARE / options.engines,
        dtype="bfloat16",
        start_timeout_s=_START_S,
    )


def _p95(values: list[float]) -> float:
    return quantiles(values, n=20, method="inclusive")[-1] if len(values) > 1 else values[0]

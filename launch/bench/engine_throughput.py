"""Measures an engine's throughput by the number of concurrent requests, and the cost of the two values of
``engine.pause_mode``.

There is one engine for each value, as a run starts it, with a model of the demo's shape and random weights.  For each
load that many requests start together, each for a fixed number of tokens; a reply that ends early is continued.  Loads
and engines take turns within each round, and the median over the rounds counts.  At the end of a round each engine
gets the largest load again, with a series of weight updates.  :mod:`launch.simulate` uses such curves.
"""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from statistics import median
from typing import Annotated, Literal, Protocol

from pydantic import Field

from actors.engines.engine import SGLangEngine
from actors.engines.messages import GenerateFunction, GenerateReply, GenerateRequest, PauseMode, WeightLoadReport
from actors.engines.settings import EngineSettings, EngineSpec
from launch.config import load_recipe
from launch.data.demo.model import CONTEXT_TOKENS, build_demo_model
from protocol.cli.arguments import AtLeastOne, CommandArguments, JsonFlag, comma_separated, option
from protocol.cli.output import error_console
from protocol.errors import UserError
from protocol.events import JsonValue
from protocol.weights import NO_VERSION, WeightManifest, WeightVersion

REQUESTS = (1, 16, 32, 64)
_PAUSES: tuple[PauseMode, ...] = ("in_place", "retract")
_EXCHANGES = 5
"""Number of weight updates of each engine in each round."""
_PROMPT_TOKENS = 20
_DEADLINE_S = 600.0
_GPU_SHARE = 0.6
"""Share of a GPU's memory for both engines."""


@dataclass(frozen=True, slots=True)
class EngineBenchmarkOptions:
    requests: tuple[int, ...]
    tokens: int
    """Number of tokens of each request."""
    rounds: int
    device: Literal["cpu", "cuda"]


@dataclass(frozen=True, slots=True)
class LoadThroughput:
    requests: int
    """Number of concurrent requests."""
    tokens_per_s: float
    """Total tokens per second."""


@dataclass(slots=True)
class EngineMeasurement:
    """The measurements of one engine."""

    rates: dict[int, list[float]] = field(default_factory=lambda: defaultdict[int, list[float]](list))
    """Concurrent requests → tokens per second in each round."""
    rates_while_loading: list[float] = field(default_factory=list[float])
    """Tokens per second at the largest load during weight updates, in each round."""
    stall_ms: list[float] = field(default_factory=list[float])
    """Pause of each weight update, in milliseconds."""

    @property
    def loads(self) -> tuple[LoadThroughput, ...]:
        return tuple(LoadThroughput(requests, round(median(found), 1)) for requests, found in self.rates.items())

    def as_json(self) -> dict[str, JsonValue]:
        return {
            "loads": [asdict(load) for load in self.loads],
            "tokens_per_s_exchanging": round(median(self.rates_while_loading), 1),
            "stall_ms_p50": round(median(self.stall_ms), 2),
        }


@dataclass(frozen=True, slots=True)
class EngineBenchmarkReport:
    pauses: dict[PauseMode, EngineMeasurement]

    @property
    def passed(self) -> bool:
        """There is no goal."""
        return True

    def as_json(self) -> dict[str, JsonValue]:
        in_place, retract = self.pauses["in_place"], self.pauses["retract"]
        faster = [theirs / ours for ours, theirs in zip(*map(_medians, (in_place, retract)), strict=True)]
        return {
            "loads": [asdict(load) for load in in_place.loads],
            "pause": {pause: measured.as_json() for pause, measured in self.pauses.items()},
            "retract_vs_in_place": {
                "tokens_per_s": [round(ratio, 3) for ratio in faster],
                "tokens_per_s_exchanging": round(
                    median(retract.rates_while_loading) / median(in_place.rates_while_loading), 3
                ),
            },
        }


def _medians(measured: EngineMeasurement) -> list[float]:
    return [load.tokens_per_s for load in measured.loads]


class EngineArguments(CommandArguments):
    """Measure tokens per second of an engine, by number of concurrent requests."""

    requests: Annotated[tuple[int, ...], comma_separated("N,…"), option()] = REQUESTS
    """Numbers of concurrent requests, in this order."""
    tokens: Annotated[int, option("N"), Field(ge=1, le=CONTEXT_TOKENS - _PROMPT_TOKENS)] = 300
    """Tokens of each request."""
    rounds: AtLeastOne = 3
    """Number of rounds; the median is reported."""
    device: Annotated[Literal["cpu", "cuda"], option()] = "cpu"
    """Device of the servers; on cuda they share one GPU."""
    as_json: JsonFlag = False


def parse_options(given: EngineArguments) -> EngineBenchmarkOptions:
    """Check the arguments.  Raises UserError."""
    if min(given.requests, default=0) < 1:
        raise UserError("--requests: a load is 1 request or more: write --requests 1,16,64")
    return EngineBenchmarkOptions(given.requests, given.tokens, given.rounds, given.device)


async def measure_engine(options: EngineBenchmarkOptions) -> EngineBenchmarkReport:
    """Run the benchmark.  Raises InfraError if an engine does not start, or is lost."""
    with tempfile.TemporaryDirectory(prefix="ls-bench-") as name:
        folder, config = Path(name), load_recipe("demo")
        await asyncio.to_thread(build_demo_model, folder / "model", config.model, config.run.seed)
        engines: dict[PauseMode, SGLangEngine] = {
            pause: SGLangEngine(_engine_spec(folder, options, pause)) for pause in _PAUSES
        }
        try:
            for engine in engines.values():
                await engine.start(_manifest(folder, 0))
            return await measure_loads(engines, options, partial(_manifest, folder), error_console().print)
        finally:
            for engine in engines.values():
                await engine.stop()


class MeasurableEngine(Protocol):
    """The interface of an engine that is needed here."""

    async def generate(self, request: GenerateRequest) -> GenerateReply: ...
    async def load_weights(self, manifest: WeightManifest, deadline_s: float) -> WeightLoadReport: ...


async def measure_loads(
    engines: Mapping[PauseMode, MeasurableEngine],
    options: EngineBenchmarkOptions,
    version: Callable[[int], WeightManifest],
    say: Callable[[str], None],
) -> EngineBenchmarkReport:
    """Measure every load of each engine in each round; ``version`` makes the weights of a number from 1 on."""
    report = EngineBenchmarkReport({pause: EngineMeasurement() for pause in engines})
    for number in range(options.rounds):
        for pause, engine in engines.items():
            measured = report.pauses[pause]
            for requests in options.requests:
                rate = await _measure_rate(engine, requests, options.tokens)
                measured.rates[requests].append(rate)
                say(f"round {number + 1}: {pause:<8} {requests:>4} requests at once {rate:>9,.0f} tokens/s")
            first = number * _EXCHANGES + 1
            versions = [version(index) for index in range(first, first + _EXCHANGES)]
            await _measure_while_loading(engine, max(options.requests), options.tokens, versions, measured)
    return report


def _engine_spec(folder: Path, options: EngineBenchmarkOptions, pause: PauseMode) -> EngineSpec:
    context = _PROMPT_TOKENS + options.tokens
    settings = EngineSettings(
        max_total_tokens=max(options.requests) * context,
        max_running=max(options.requests),
        device=options.device,
        mem_fraction_static=_GPU_SHARE / len(_PAUSES),
        start_timeout_s=_DEADLINE_S,
        pause_mode=pause,
    )
    model = str(folder / "model")
    return EngineSpec(
        settings=settings, name=f"engine-{pause}", run_dir=folder, model_path=model, context_length=context
    )


def _manifest(folder: Path, number: int) -> WeightManifest:
    """Return a manifest of the same weights under another version."""
    return WeightManifest(WeightVersion(number), number, NO_VERSION, str(folder / "model"), "", 0, 0)


async def _measure_rate(engine: MeasurableEngine, requests: int, tokens: int) -> float:
    """Return the tokens per second of this many concurrent requests."""
    begun = time.monotonic()
    async with asyncio.TaskGroup() as together:
        for slot in range(requests):
            together.create_task(_sample_tokens(engine.generate, [slot] * _PROMPT_TOKENS, tokens))
    return requests * tokens / (time.monotonic() - begun)


async def _measure_while_loading(
    engine: MeasurableEngine,
    requests: int,
    tokens: int,
    versions: Sequence[WeightManifest],
    measured: EngineMeasurement,
) -> None:
    """Return the tokens per second during updates to these versions."""
    async with asyncio.TaskGroup() as both:
        rate = both.create_task(_measure_rate(engine, requests, tokens))
        for manifest in versions:
            measured.stall_ms.append((await engine.load_weights(manifest, _DEADLINE_S)).pause_ms)
    measured.rates_while_loading.append(rate.result())


async def _sample_tokens(generate: GenerateFunction, prompt: Sequence[int], tokens: int) -> None:
    """Sample a number of tokens after ``prompt``, continuing replies that end early."""
    sampled: list[int] = []
    while len(sampled) < tokens:
        reply = await generate(
            GenerateRequest(
                input_ids=[*prompt, *sampled],
                max_new_tokens=tokens - len(sampled),
                temperature=1.0,
                stop_token_ids=(),
                seed=None,
                greedy=False,
                session="bench",
                deadline_s=_DEADLINE_S,
            )
        )
        sampled += reply.token_ids

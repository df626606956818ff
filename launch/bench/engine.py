"""Tokens a second of one engine by the requests that it decodes at once: the curve of :mod:`launch.simulate`.

The engine is a run's own, on a model of the demo's shape with random weights.  Of each load so many requests begin
together, each for as many tokens; one that the model ends before goes on, so that all end together.  The loads take
turns within each round, and the median over the rounds counts.
"""

from __future__ import annotations

import argparse
import asyncio
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median

from actors.engines.engine import Engine, EngineSettings
from actors.engines.messages import Generate, GenerateRequest
from launch.config import load_recipe
from launch.demo.model import CONTEXT_TOKENS, build_demo_model
from protocol.cli.output import error_console
from protocol.errors import UserError
from protocol.events import Json
from protocol.weights import NO_VERSION, Version, WeightManifest

REQUESTS = (1, 16, 32, 64)
_PROMPT_TOKENS = 20
_DEADLINE_S = 600.0


@dataclass(frozen=True, slots=True)
class Options:
    requests: tuple[int, ...]
    tokens: int
    """Of each request."""
    rounds: int


@dataclass(frozen=True, slots=True)
class Load:
    requests: int
    """Decoded at once."""
    tokens_per_s: float
    """Of all together."""


@dataclass(frozen=True, slots=True)
class Report:
    loads: tuple[Load, ...]

    @property
    def holds(self) -> bool:
        """Nothing is to be reached."""
        return True

    def as_json(self) -> dict[str, Json]:
        return {"loads": [asdict(load) for load in self.loads]}


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--requests", default=",".join(map(str, REQUESTS)), metavar="N,…", help="loads, in this order")
    parser.add_argument("--tokens", type=int, default=300, metavar="N", help="of each request (default 300)")
    parser.add_argument("--rounds", type=int, default=3, metavar="N", help="the median of which counts (default 3)")


def options(given: argparse.Namespace) -> Options:
    """Raises UserError."""
    try:
        requests = tuple(int(part) for part in given.requests.split(","))
    except ValueError:
        raise UserError(f"--requests {given.requests} is no list of loads: write --requests 1,16,64") from None
    most = CONTEXT_TOKENS - _PROMPT_TOKENS
    if min(requests) < 1 or not 1 <= given.tokens <= most or given.rounds < 1:
        raise UserError(f"loads are 1 request or more, --tokens 1 to {most}, --rounds 1 or more")
    return Options(requests, given.tokens, given.rounds)


async def measure(asked: Options) -> Report:
    """Raises InfraError where the engine does not come up, or is lost."""
    say = error_console().print
    with tempfile.TemporaryDirectory(prefix="ls-bench-") as folder:
        engine = await _started(Path(folder), asked)
        try:
            return await measure_loads(engine.generate, asked, say)
        finally:
            await engine.stop()


async def _started(folder: Path, asked: Options) -> Engine:
    config, model, context = load_recipe("demo"), folder / "model", _PROMPT_TOKENS + asked.tokens
    await asyncio.to_thread(build_demo_model, model, config.model, config.run.seed)
    engine = Engine(
        EngineSettings(
            name="engine-0",
            run_dir=folder,
            model_path=str(model),
            context_length=context,
            max_total_tokens=max(asked.requests) * context,
            max_running=max(asked.requests),
            device=config.engine.device,
            dtype=config.engine.dtype,
            start_timeout_s=config.engine.start_timeout_s,
        )
    )
    await engine.start(WeightManifest(Version(0), 0, NO_VERSION, str(model), "", 0, 0))
    return engine


async def measure_loads(generate: Generate, asked: Options, say: Callable[[str], None]) -> Report:
    """Ask ``generate`` for every load in each round."""
    rates: dict[int, list[float]] = defaultdict(list)
    for number in range(asked.rounds):
        for requests in asked.requests:
            begun = time.monotonic()
            async with asyncio.TaskGroup() as together:
                for slot in range(requests):
                    together.create_task(_sample(generate, [slot] * _PROMPT_TOKENS, asked.tokens))
            rate = requests * asked.tokens / (time.monotonic() - begun)
            rates[requests].append(rate)
            say(f"round {number + 1}: {requests:>4} requests at once {rate:>9,.0f} tokens/s")
    return Report(tuple(Load(requests, round(median(found), 1)) for requests, found in rates.items()))


async def _sample(generate: Generate, prompt: Sequence[int], tokens: int) -> None:
    """As many tokens after ``prompt``, going on where the model ended a reply."""
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

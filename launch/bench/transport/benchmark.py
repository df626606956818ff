"""Measures trajectories per second from one process to another: longshore's stream with and without journal, and
alternatives.

The arms of one length take turns within each round, so that other load on the machine affects all of them; each
figure is the median over the rounds.  Losses are summed over all rounds and over a stalled reader.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections import defaultdict
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Annotated

from pydantic import Field

from launch.bench.transport import baselines, receivers
from launch.bench.transport.backpressure import StallMeasurement, count_pubsub_losses, measure_stall
from launch.bench.transport.receivers import TransportRate
from launch.bench.transport.workload import TOKENS
from launch.hosts.cluster_nodes import start_local_nodes
from protocol.cli.arguments import AtLeastOne, CommandArguments, JsonFlag, comma_separated, option
from protocol.cli.output import error_console
from protocol.errors import UserError
from protocol.events import JsonValue


@dataclass(frozen=True, slots=True)
class TransportBenchmarkOptions:
    tokens: tuple[int, ...]
    seconds: float
    rounds: int
    folder: Path | None
    """Folder on the disk to which the journal arms write."""


@dataclass(frozen=True, slots=True)
class TransportCase:
    """The rates at one length, in trajectories per second; each ``vs`` is longshore's rate ÷ the other."""

    tokens: int
    ours_per_s: float
    ours_durable_per_s: float
    ray_queue_per_s: float
    raw_zmq_per_s: float
    raw_zmq_blocking_per_s: float
    ray_object_store_per_s: float
    sqlite_raw_per_s: float
    vs_ray_queue: float
    durable_vs_ray_queue: float
    vs_raw_zmq: float
    durable_vs_sqlite_raw: float
    lost_ours: int
    lost_pubsub: int


@dataclass(frozen=True, slots=True)
class TransportReport:
    cases: tuple[TransportCase, ...]
    stalls: tuple[StallMeasurement, ...]
    """Stalled readers, one for each length."""

    @property
    def failures(self) -> Sequence[str]:
        """The promises that do not hold, one line each: longshore's stream loses nothing and keeps its bounds, and
        the stall is real, so that PUB/SUB has losses.  Ratios are no promises, as they depend on the machine.
        """
        found: list[str] = []
        for case, stall in zip(self.cases, self.stalls, strict=True):
            wrong = [f"{case.lost_ours} lost by ours"] if case.lost_ours else []
            wrong += [] if case.lost_pubsub else ["nothing lost by PUB/SUB, so the stall was none"]
            found += [f"{case.tokens} tokens: {what}" for what in (*wrong, *stall.excesses)]
        return found

    @property
    def passed(self) -> bool:
        return not self.failures

    def as_json(self) -> dict[str, JsonValue]:
        return {"cases": [asdict(case) for case in self.cases]}


class TransportArguments(CommandArguments):
    """Measure trajectories per second from one process to another, by length."""

    tokens: Annotated[tuple[int, ...], comma_separated("N,…"), option()] = TOKENS
    """Trajectory lengths, in this order."""
    duration_s: Annotated[float, option("S"), Field(gt=0)] = 2.0
    """Duration of one measurement; each round has one for each length and transport."""
    rounds: AtLeastOne = 3
    """Number of rounds; the median is reported."""
    output: Annotated[Path | None, option("FOLDER")] = None
    """Folder for the journal; default: a temporary one."""
    as_json: JsonFlag = False


def parse_options(given: TransportArguments) -> TransportBenchmarkOptions:
    """Check the arguments.  Raises UserError."""
    if not given.tokens or not all(2 <= each <= TOKENS[-1] for each in given.tokens):
        raise UserError(f"--tokens: lengths are 2 to {TOKENS[-1]} tokens: write --tokens 1024,8192")
    if given.output is not None and not given.output.is_dir():
        raise UserError(f"there is no folder {given.output}: make it, or leave --output out")
    return TransportBenchmarkOptions(given.tokens, given.duration_s, given.rounds, given.output)


async def measure_transport(options: TransportBenchmarkOptions) -> TransportReport:
    """Run the benchmark.  Raises InfraError if a process fails."""
    say = error_console().print
    with tempfile.TemporaryDirectory(prefix="ls-bench-") as folder:
        async with start_local_nodes(1, Path(folder)):
            measured = [await _measure_case(tokens, options, say) for tokens in options.tokens]
    report = TransportReport(tuple(case for case, _ in measured), tuple(stall for _, stall in measured))
    for failure in report.failures:
        say(f"failed: {failure}")
    return report


async def _measure_case(
    tokens: int, options: TransportBenchmarkOptions, say: Callable[[str], None]
) -> tuple[TransportCase, StallMeasurement]:
    rates: dict[str, list[float]] = defaultdict(list)
    lost = 0
    for number in range(options.rounds):
        for name, run in _transports(tokens, options.seconds):
            with tempfile.TemporaryDirectory(prefix="ls-bench-", dir=options.folder) as folder:
                arm = await run(Path(folder))
            rates[name].append(arm.per_s)
            lost += arm.lost
            say(f"{tokens:>7} tokens, round {number + 1}: {name:<16} {arm.per_s:>9.0f} trajectories/s")
    stall = await asyncio.to_thread(measure_stall, tokens)
    lost += stall.lost
    lost_pubsub = await asyncio.to_thread(count_pubsub_losses, tokens)
    say(f"{tokens:>7} tokens, reader stalled: {lost} lost by ours, {lost_pubsub} by PUB/SUB")
    rate = {name: median(found) for name, found in rates.items()}
    case = TransportCase(
        tokens=tokens,
        ours_per_s=round(rate["ours"], 1),
        ours_durable_per_s=round(rate["ours_durable"], 1),
        ray_queue_per_s=round(rate["ray_queue"], 1),
        raw_zmq_per_s=round(rate["raw_zmq"], 1),
        raw_zmq_blocking_per_s=round(rate["raw_zmq_blocking"], 1),
        ray_object_store_per_s=round(rate["ray_object_store"], 1),
        sqlite_raw_per_s=round(rate["sqlite_raw"], 1),
        vs_ray_queue=round(rate["ours"] / rate["ray_queue"], 3),
        durable_vs_ray_queue=round(rate["ours_durable"] / rate["ray_queue"], 3),
        vs_raw_zmq=round(rate["ours"] / rate["raw_zmq"], 3),
        durable_vs_sqlite_raw=round(rate["ours_durable"] / rate["sqlite_raw"], 3),
        lost_ours=lost,
        lost_pubsub=lost_pubsub,
    )
    return case, stall


def _transports(tokens: int, seconds: float) -> Sequence[tuple[str, Callable[[Path], Awaitable[TransportRate]]]]:
    """Return the arms, each with an empty folder; blocking ones run in a thread while the event loop is idle."""
    thread = asyncio.to_thread
    return (
        ("ours", lambda _: receivers.receive_longshore(tokens, seconds)),
        ("raw_zmq", lambda _: receivers.receive_raw_zmq(tokens, seconds)),
        ("raw_zmq_blocking", lambda _: thread(receivers.receive_raw_zmq_blocking, tokens, seconds)),
        ("ours_durable", lambda folder: receivers.receive_longshore_durable(tokens, seconds, folder)),
        ("sqlite_raw", lambda folder: thread(baselines.measure_raw_sqlite, tokens, seconds, folder)),
        ("ray_queue", lambda _: thread(baselines.measure_ray_queue, tokens, seconds)),
        ("ray_object_store", lambda _: thread(baselines.measure_ray_object_store, tokens, seconds)),
    )

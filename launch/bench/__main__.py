"""``longshore bench BENCHMARK``: measure one part of longshore, or try all recipes."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Awaitable
from typing import Annotated, Protocol

from tyro.conf import subcommand

from launch.bench import engine_throughput, grading
from launch.bench.chaos import benchmark as chaos
from launch.bench.learner import benchmark as learner
from launch.bench.monitor import benchmark as monitor
from launch.bench.recipes import benchmark as recipes
from launch.bench.soak import benchmark as soak
from launch.bench.training_modes import benchmark as training_modes
from launch.bench.transport import benchmark as transport
from launch.bench.weights import benchmark as weights
from launch.hosts.ray_environment import resolve_ray_environment
from protocol.cli.arguments import CommandArguments
from protocol.cli.command import Command
from protocol.cli.exit_codes import EXIT_FAILED, EXIT_OK
from protocol.cli.output import JsonOutput
from protocol.events import JsonValue


class BenchArguments(CommandArguments):
    """Measure one part of longshore, or try all recipes.

    Example: longshore bench transport --tokens 1024,8192
    """

    benchmark: (
        Annotated[transport.TransportArguments, subcommand("transport")]
        | Annotated[engine_throughput.EngineArguments, subcommand("engine")]
        | Annotated[grading.GradingArguments, subcommand("grading")]
        | Annotated[learner.LearnerArguments, subcommand("learner")]
        | Annotated[weights.WeightsArguments, subcommand("weights")]
        | Annotated[training_modes.ModesArguments, subcommand("training-modes")]
        | Annotated[chaos.ChaosArguments, subcommand("chaos")]
        | Annotated[soak.SoakArguments, subcommand("soak")]
        | Annotated[recipes.RecipesArguments, subcommand("recipes")]
        | Annotated[monitor.MonitorBenchmarkArguments, subcommand("monitor")]
    )


class _Report(Protocol):
    @property
    def passed(self) -> bool: ...
    def as_json(self) -> dict[str, JsonValue]: ...


def run(given: BenchArguments, out: JsonOutput) -> int:
    """Measure, and return 0 if the benchmark's promises hold."""
    os.environ.update(resolve_ray_environment(""))
    report = asyncio.run(_measure(given))
    out.set_result(report.as_json())
    return EXIT_OK if report.passed else EXIT_FAILED


async def _measure(given: BenchArguments) -> _Report:
    measuring: Awaitable[_Report]
    match given.benchmark:
        case transport.TransportArguments() as arguments:
            measuring = transport.measure_transport(transport.parse_options(arguments))
        case engine_throughput.EngineArguments() as arguments:
            measuring = engine_throughput.measure_engine(engine_throughput.parse_options(arguments))
        case grading.GradingArguments() as arguments:
            measuring = grading.measure_grading(arguments)
        case learner.LearnerArguments() as arguments:
            measuring = learner.measure_learner(learner.parse_options(arguments))
        case weights.WeightsArguments() as arguments:
            measuring = weights.measure_weights(weights.parse_options(arguments))
        case training_modes.ModesArguments() as arguments:
            measuring = training_modes.measure_modes(training_modes.parse_options(arguments))
        case chaos.ChaosArguments() as arguments:
            measuring = chaos.measure_chaos(chaos.parse_options(arguments))
        case soak.SoakArguments() as arguments:
            measuring = soak.measure_soak(soak.parse_options(arguments))
        case monitor.MonitorBenchmarkArguments() as arguments:
            measuring = monitor.measure_monitor(monitor.parse_options(arguments))
        case recipes.RecipesArguments() as arguments:
            measuring = recipes.measure_recipes(recipes.parse_options(arguments))
    return await measuring


COMMAND = Command("bench", BenchArguments, run)

if __name__ == "__main__":
    sys.exit(COMMAND.main())

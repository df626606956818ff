"""``python -m launch.bench PART [--json]``: measure a part of longshore, or try all of it."""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
from collections.abc import Sequence
from typing import Protocol

from launch.bench import chaos, engine_throughput, learner, monitor, recipes, training_modes, transport, weights
from launch.hosts.ray_environment import resolve_ray_environment
from protocol.cli.exit_codes import EXIT_FAILED, EXIT_OK, main_guard
from protocol.cli.parser import CommandLineParser, parse_command_line
from protocol.events import JsonValue


def main(argv: Sequence[str] | None = None) -> int:
    parser = CommandLineParser(prog="python -m launch.bench")
    kinds = parser.add_subparsers(dest="kind", required=True, metavar="KIND")
    made = kinds.add_parser("transport", help="trajectories a second from one process to another, by length")
    transport.add_options(made)
    made.add_argument("--json", action="store_true", help="print one JSON object on standard output")
    made = kinds.add_parser("engine", help="tokens a second of one engine, by the requests that it decodes at once")
    engine_throughput.add_options(made)
    made.add_argument("--json", action="store_true", help="print one JSON object on standard output")
    made = kinds.add_parser("learner", help="seconds of an optimizer step, beside plain Hugging Face's")
    learner.add_options(made)
    made.add_argument("--json", action="store_true", help="print one JSON object on standard output")
    made = kinds.add_parser("weights", help="what it costs engines that decode to be given new weights")
    weights.add_options(made)
    made.add_argument("--json", action="store_true", help="print one JSON object on standard output")
    made = kinds.add_parser("async", help="episodes a second of whole runs that wait for the learner, and that do not")
    training_modes.add_options(made)
    made.add_argument("--json", action="store_true", help="print one JSON object on standard output")
    made = kinds.add_parser("chaos", help="kill processes of a run, and say where each trajectory went")
    chaos.add_options(made)
    made.add_argument("--json", action="store_true", help="print one JSON object on standard output")
    made = kinds.add_parser("recipes", help="two steps of every recipe on a tiny model, in real sandboxes")
    recipes.add_options(made)
    made.add_argument("--json", action="store_true", help="print one JSON object on standard output")
    made = kinds.add_parser("monitor", help="a long run opened, and a real one watched, in the live monitor")
    monitor.add_options(made)
    made.add_argument("--json", action="store_true", help="print one JSON object on standard output")
    with parse_command_line(parser, argv) as (given, out):
        os.environ.update(resolve_ray_environment(""))
        report = asyncio.run(_measured(given))
        out.set_result(report.as_json())
    return EXIT_OK if report.holds else EXIT_FAILED


class _Report(Protocol):
    @property
    def holds(self) -> bool: ...
    def as_json(self) -> dict[str, JsonValue]: ...


async def _measured(given: argparse.Namespace) -> _Report:
    match given.kind:
        case "transport":
            return await transport.measure_transport(transport.parse_options(given))
        case "engine":
            return await engine_throughput.measure_engine(engine_throughput.parse_options(given))
        case "learner":
            return await learner.measure_learner(learner.parse_options(given))
        case "weights":
            return await weights.measure_weights(weights.parse_options(given))
        case "async":
            return await training_modes.measure_modes(training_modes.parse_options(given))
        case "chaos":
            return await chaos.measure_chaos(chaos.parse_options(given))
        case "monitor":
            return await monitor.measure_monitor(monitor.parse_options(given))
        case _:
            return await recipes.measure_recipes(recipes.parse_options(given))


if __name__ == "__main__":
    sys.exit(main_guard(main))

"""``python -m launch.plan RECIPE …``: the memory, speed, age, engines and sandboxes of a run, before it starts.

Memory follows from the model's shape.  Speed and age need to know what episodes and steps take: from a run of yours
(``--from runs/ID``), or assumed (``--scenario``).  The plan of a run from its own trace is held to a fifth of what that
run measured.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from launch.config import RunConfig, load_recipe, recipe_names
from launch.config.command_line import format_model_overrides, format_overrides
from launch.demo.model import CONTEXT_TOKENS
from launch.doctor.requirements import count_gpus
from launch.plan.forecast import (
    ForecastBasis,
    basis_from_scenario,
    basis_from_trace,
    estimate_needs,
    forecast_caveat,
    forecast_run,
    max_episodes,
)
from launch.plan.memory import engine_memory, learner_memory, read_model_shape
from launch.plan.memory_fit import find_memory_problems
from launch.plan.plan_table import forecast_lines, memory_lines, needs_lines
from launch.simulate.run_trace import read_trace
from launch.simulate.scenario import find_scenario, read_scenario, scenario_names
from protocol.cli.exit_codes import EXIT_FAILED, EXIT_OK, main_guard
from protocol.cli.numbers import integer_between, number_at_least
from protocol.cli.output import error_console
from protocol.cli.parser import CommandLineParser, parse_command_line
from protocol.errors import UserError
from protocol.events import JsonValue


def parser() -> CommandLineParser:
    made = CommandLineParser(
        prog="python -m launch.plan",
        description="What a run would need and come to: memory by part, steps an hour, ages, engines and sandboxes.",
        epilog="Example: python -m launch.plan demo --from runs/demo-20261125-101500",
    )
    add = made.add_argument
    names = ", ".join(recipe_names())
    add("recipe", metavar="RECIPE", help=f"one of: {names}; or a TOML file's path")
    add("--nodes", type=integer_between(1), metavar="N", help="Ray nodes")
    add("--model", metavar="FOLDER", help="Hugging Face folder of a dense Qwen2.5 or Qwen3, as launch.cluster takes it")
    add("--set", action="append", default=[], metavar="KEY=VALUE", help="override one key, as launch.cluster does")
    where = made.add_mutually_exclusive_group()
    where.add_argument("--from", dest="run", type=Path, metavar="RUN", help="a run's directory, or a trace of one")
    where.add_argument("--scenario", metavar="NAME|FILE", help=f"one of {', '.join(scenario_names())}; or a path")
    add("--gpu-gb", type=number_at_least(1), metavar="GB", help="memory of one GPU; default: 80")
    add("--json", action="store_true", help="print the plan as one JSON object on standard output")
    return made


def main() -> int:
    """Plan, and say by the exit code whether it fits."""
    with parse_command_line(parser()) as (given, out):
        config = _config(given)
        device = int((given.gpu_gb or 80) * (1 << 30)) if count_gpus(config) else None
        shape = read_model_shape(config.model, CONTEXT_TOKENS)
        memories = (learner_memory(shape, config), engine_memory(shape, config, device))
        tight = [*find_memory_problems(shape, config, *memories, device)]
        basis = _basis(given, config)
        console = error_console()
        for line in (*memory_lines(memories, device), *tight):
            console.print(line)
        plan: dict[str, JsonValue] = {
            "recipe": given.recipe,
            "nodes": config.cluster.nodes,
            "gpus": count_gpus(config),
            "parameters": shape.count_parameters(),
            "memory": [memory.as_json() for memory in memories],
            "fits": not tight,
            "problems": [*tight],
            "has": {"sandboxes": max_episodes(config), "engines": config.engine.count, "hosts": _hosts(config)},
            "forecast": None,
            "needs": None,
        }
        if basis is None:
            console.print(
                "steps an hour and ages: name a run (--from runs/ID; `python -m launch.cluster --recipe "
                f"{given.recipe} --steps 8` makes one), or assume (--scenario small)"
            )
        else:
            plan |= _expected(config, basis)
        out.set_result(plan)
        return EXIT_FAILED if tight else EXIT_OK


def _config(given: argparse.Namespace) -> RunConfig:
    values = [*format_overrides({"cluster.nodes": given.nodes}), *format_model_overrides(given.model)]
    return load_recipe(given.recipe, [*values, *given.set])


def _basis(given: argparse.Namespace, config: RunConfig) -> ForecastBasis | None:
    if given.run is not None:
        if not given.run.exists():
            raise UserError(f"--from {given.run} is not there: name a run's directory, or a trace of one")
        return basis_from_trace(read_trace(given.run), config.rollout)
    if given.scenario is None:
        return None
    path = find_scenario(given.scenario)
    if path.is_dir():
        raise UserError(f"--scenario {path} is a run: --from {path}")
    return basis_from_scenario(read_scenario(path), config.run.seed)


def _expected(config: RunConfig, basis: ForecastBasis) -> dict[str, JsonValue]:
    """Simulate, and say it."""
    console = error_console()
    expected = forecast_run(config, basis)
    needed, careful = estimate_needs(config, basis, expected.dropped_share), forecast_caveat(config, basis)
    for line in (
        *forecast_lines(expected),
        *needs_lines(needed, engines=config.engine.count, places=expected.capacity, hosts=_hosts(config)),
        *([f"note: {careful}"] if careful else ()),
    ):
        console.print(line)
    hours = config.run.steps / expected.steps_per_hour
    console.print(f"{config.run.steps:,} steps would take {hours:,.2f} hours")
    return {
        "forecast": expected.as_json() | {"hours": round(hours, 4), "caution": careful},
        "needs": needed.as_json(),
    }


def _hosts(config: RunConfig) -> int:
    """Machines: simulated nodes are on one."""
    return config.cluster.nodes if config.cluster.address else 1


if __name__ == "__main__":
    sys.exit(main_guard(main))

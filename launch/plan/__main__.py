"""``longshore plan [RECIPE] …``: estimate a run's memory, speed and machines.

Memory follows from the model's shape.  Speed and staleness need durations of episodes and steps, from a run (``--from
runs/ID``) or assumed (``--scenario``).  A plan from a run's own trace is within a fifth of what the run measured.
"""

from __future__ import annotations

import os
import sys
from typing import Annotated, Self

from pydantic import Field, model_validator

from launch.config import RunConfig
from launch.config.command_line import (
    DEFAULT_RECIPE,
    ModelFolder,
    NodeCount,
    RecipeName,
    format_model_overrides,
    key_overrides,
)
from launch.config.recipe_environment import load_recipe_in
from launch.data.demo.model import CONTEXT_TOKENS
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
from launch.plan.judge_memory import find_judge_problems, judge_memory
from launch.plan.memory import engine_memory, learner_memory, read_model_shape
from launch.plan.memory_fit import find_memory_problems
from launch.plan.plan_table import forecast_lines, memory_lines, needs_lines
from launch.simulate.run_trace import read_trace
from launch.simulate.scenario import find_scenario, read_scenario, scenario_names
from protocol.cli.arguments import CommandArguments, JsonFlag, Overrides, option
from protocol.cli.command import Command
from protocol.cli.exit_codes import EXIT_FAILED, EXIT_OK
from protocol.cli.output import JsonOutput, output_console
from protocol.errors import UserError
from protocol.events import JsonValue
from protocol.run_directory.run_arguments import RunFolder


class PlanArguments(CommandArguments):
    """Estimate a run's memory by part, steps per hour, staleness, engines and sandboxes.

    Example: longshore plan demo --from demo-20261125-101500
    """

    recipe: RecipeName = DEFAULT_RECIPE
    nodes: NodeCount = None
    model: ModelFolder = None
    overrides: Overrides = ()
    run: Annotated[RunFolder | None, option("RUN", name="from")] = None
    """Take durations of episodes and steps from this run, or a trace of one."""
    scenario: Annotated[
        str | None,
        option("NAME|FILE"),
        Field(
            description="Simulate this scenario for speed and staleness, instead of --from: one of "
            f"{', '.join(scenario_names())}; or a path."
        ),
    ] = None
    gpu_gb: Annotated[float, option("GiB"), Field(ge=1)] = 80.0
    """Memory of one GPU, in GiB."""
    as_json: JsonFlag = False

    @model_validator(mode="after")
    def _one_basis(self) -> Self:
        if self.run is not None and self.scenario is not None:
            raise UserError("--from and --scenario exclude each other: leave one of them out")
        return self


def run(given: PlanArguments, out: JsonOutput) -> int:
    """Plan, print the plan, and return 1 if it does not fit into memory."""
    config = _load_config(given)
    device = int(given.gpu_gb * (1 << 30)) if count_gpus(config) else None
    shape = read_model_shape(config.model, CONTEXT_TOKENS)
    learner, engine = learner_memory(shape, config), engine_memory(shape, config, device)
    memories, problems = [learner, engine], [*find_memory_problems(shape, config, learner, engine, device)]
    if (judge := judge_memory(config, device)) is not None:
        memories.append(judge)
        problems += find_judge_problems(config, judge, device)
    basis = _basis(given, config)
    console = output_console()
    for line in (*memory_lines(memories, device), *problems):
        console.print(line)
    plan: dict[str, JsonValue] = {
        "recipe": given.recipe,
        "nodes": config.cluster.nodes,
        "gpus": count_gpus(config),
        "parameters": shape.count_parameters(),
        "memory": [memory.as_json() for memory in memories],
        "fits": not problems,
        "problems": [*problems],
        "has": {"sandboxes": max_episodes(config), "engines": config.engine.count, "hosts": _hosts(config)},
        "forecast": None,
        "needs": None,
    }
    if basis is None:
        console.print(
            "for steps per hour and staleness name a run (--from RUN, its id or directory; `longshore cluster "
            f"{given.recipe} --steps 8` makes one) or a scenario (--scenario small)"
        )
    else:
        plan |= _forecast(config, basis)
    out.set_result(plan)
    return EXIT_FAILED if problems else EXIT_OK


def _load_config(given: PlanArguments) -> RunConfig:
    values = [*key_overrides(given), *format_model_overrides(given.model)]
    config, remarks = load_recipe_in(os.environ, given.recipe, [*values, *given.overrides])
    for remark in remarks:
        output_console().print(f"remark: {remark}")
    return config


def _basis(given: PlanArguments, config: RunConfig) -> ForecastBasis | None:
    if given.run is not None:
        if not given.run.exists():
            raise UserError(f"--from {given.run} does not exist: name a run's directory or a trace")
        return basis_from_trace(read_trace(given.run), config.rollout)
    if given.scenario is None:
        return None
    path = find_scenario(given.scenario)
    if path.is_dir():
        raise UserError(f"--scenario {path} is a run: use --from {path}")
    return basis_from_scenario(read_scenario(path), config.run.seed)


def _forecast(config: RunConfig, basis: ForecastBasis) -> dict[str, JsonValue]:
    """Simulate the run, and print and return the forecast."""
    console = output_console()
    forecast = forecast_run(config, basis)
    needed, caveat = estimate_needs(config, basis, forecast.dropped_share), forecast_caveat(config, basis)
    for line in (
        *forecast_lines(forecast),
        *needs_lines(needed, engines=config.engine.count, capacity=forecast.capacity, hosts=_hosts(config)),
        *([f"note: {caveat}"] if caveat else ()),
    ):
        console.print(line)
    hours = config.run.steps / forecast.steps_per_hour
    console.print(f"{config.run.steps:,} steps would take {hours:,.2f} hours")
    return {
        "forecast": forecast.as_json() | {"hours": round(hours, 4), "caveat": caveat},
        "needs": needed.as_json(),
    }


def _hosts(config: RunConfig) -> int:
    """Return the number of machines; simulated nodes share one."""
    return config.cluster.nodes if config.cluster.address else 1


COMMAND = Command("plan", PlanArguments, run)

if __name__ == "__main__":
    sys.exit(COMMAND.main())

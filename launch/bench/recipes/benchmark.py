"""``longshore bench recipes``: run every recipe on this machine, on tasks in its own document's format.

Every recipe runs with other sizes, paths and times (:mod:`launch.bench.tiny_recipes`): a tiny model that was taught
to act (:mod:`launch.bench.recipes.practice_model`), the real server, real sandboxes, and a small data set
(:mod:`launch.bench.recipes.practice_sets`).  Each run is a separate process of the run's own command; a failure does
not stop the others.
"""

from __future__ import annotations

import secrets
import shutil
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import fmean
from typing import Annotated, NamedTuple, cast

import orjson
from tyro.conf import Positional

from launch.bench.kept_runs import OutputFolder, make_output_folder, require_empty_folder
from launch.bench.recipes.practice_model import TRAINED, UNTRAINED, train_practice_model
from launch.bench.recipes.practice_sets import PRACTICE_SETS
from launch.bench.tiny_recipes import build_tiny_model, tiny_overrides
from launch.config import RunConfig, load_recipe, recipe_names
from launch.processes.child_process import run_command
from launch.processes.process_reaper import ProcessReaper
from launch.run.preflight import run_preflight_checks
from launch.run_records.metrics_log import read_metrics
from protocol.cli.arguments import AtLeastOne, CommandArguments, JsonFlag, option
from protocol.cli.output import error_console
from protocol.cli.suggestions import did_you_mean
from protocol.errors import UserError
from protocol.events import JsonValue
from protocol.run_directory.layout import SUMMARY_FILE
from sandbox.tasks.formats.registry import TaskFormat

_PART = "part_"
"""Prefix of metrics that are means of reward components."""


@dataclass(frozen=True, slots=True)
class RecipeBenchmarkOptions:
    recipes: tuple[str, ...]
    steps: int
    folder: Path | None
    """Folder that keeps the runs; None deletes them."""


@dataclass(frozen=True, slots=True)
class RecipeResult:
    """The result of one recipe."""

    loads: bool
    data_format: str = ""
    """Format of its tasks."""
    steps_run: int = 0
    trained: int = 0
    """Number of trained trajectories."""
    rewards: Sequence[float] = ()
    """Mean reward of each step."""
    losses: Sequence[float] = ()
    """Loss of each step."""
    grad_norms: Sequence[float] = ()
    """Norm of each step's gradient: 0 where nothing was to be learned."""
    reward_parts: Mapping[str, float] | None = None
    """Component of the reward → its mean over the steps; None if there was no step."""
    seconds: float = 0.0
    """Seconds of the whole run."""


@dataclass(frozen=True, slots=True)
class RecipeBenchmarkReport:
    results: Mapping[str, RecipeResult]
    failures: Sequence[str]

    @property
    def passed(self) -> bool:
        return not self.failures

    def as_json(self) -> dict[str, JsonValue]:
        return {name: cast("JsonValue", asdict(each)) for name, each in self.results.items()}


class RecipesArguments(CommandArguments):
    """Run a few steps of every recipe on a tiny model, in real sandboxes."""

    recipes: Positional[Annotated[tuple[str, ...], option("[RECIPE ...]")]] = ()
    """Recipes; default: all."""
    steps: AtLeastOne = 2
    """Optimizer steps per recipe."""
    output: OutputFolder = None
    as_json: JsonFlag = False


def parse_options(given: RecipesArguments) -> RecipeBenchmarkOptions:
    """Check the arguments.  Raises UserError."""
    known = recipe_names()
    for name in given.recipes:
        if name not in known:
            raise UserError(f"{name}: the recipes to try are {', '.join(known)}{did_you_mean(name, known)}")
    return RecipeBenchmarkOptions(
        tuple(dict.fromkeys(given.recipes)) or tuple(known), given.steps, require_empty_folder(given.output)
    )


class RecipePlan(NamedTuple):
    """The data and the overrides with which a recipe is run here."""

    data_format: TaskFormat
    values: tuple[str, ...]
    """Overrides, but for the model."""
    config: RunConfig


async def measure_recipes(options: RecipeBenchmarkOptions) -> RecipeBenchmarkReport:
    """Run each recipe, whatever the result of the others.  Raises UserError if the tiny model cannot be trained."""
    say = error_console().print
    output = make_output_folder(options.folder)
    say(f"runs: {output / 'runs'}")
    tried = {name: RecipeResult(loads=False) for name in options.recipes}
    plans, failures = dict[str, RecipePlan](), list[str]()
    build_tiny_model(output / UNTRAINED)
    for name in options.recipes:
        try:
            load_recipe(name)
            tried[name] = RecipeResult(loads=True)
            plans[name] = plan_recipe(name, output, options.steps)
        except UserError as error:
            failures.append(f"{name}: {error}")
    with ProcessReaper(secrets.token_hex(16), Path(tempfile.mkdtemp(prefix="ls-"))):
        if plans:
            say("the tiny model is trained on attempts at the tasks: about two minutes")
            await train_practice_model({name: plan.config for name, plan in plans.items()}, output)
        for name, plan in plans.items():
            tried[name], why = await run_recipe(name, plan, output, options.steps)
            failures += [f"{name}: {each}" for each in why]
            say(f"{name}: {tried[name].steps_run} steps in {tried[name].seconds:.0f} s")
    for line in failures:
        say(f"failed: {line}")
    if not failures and options.folder is None:
        shutil.rmtree(output)
    return RecipeBenchmarkReport(tried, failures)


def plan_recipe(name: str, output: Path, steps: int) -> RecipePlan:
    """Write a recipe's data set below ``output``, and check that this machine can run it.  Raises UserError."""
    practice = PRACTICE_SETS[name]
    values = (
        *tiny_overrides(name),
        *practice.write(output / "data" / name),
        f"run.dir='{output / 'runs'}'",
        f"run.steps={steps}",
    )
    config = load_recipe(name, (*values, f"model.path='{output / UNTRAINED}'"))
    run_preflight_checks(config)
    return RecipePlan(practice.format, values, config)


async def run_recipe(name: str, plan: RecipePlan, output: Path, steps: int) -> tuple[RecipeResult, list[str]]:
    """Run a recipe, and return its result and its failures, one line each."""
    sets = [word for value in (*plan.values, f"model.path='{output / TRAINED}'") for word in ("--set", value)]
    began, run_dir = time.monotonic(), output / "runs" / name
    await run_command(sys.executable, "-m", "launch.cluster", name, "--run-id", name, *sets)
    result = read_recipe_result(run_dir, plan.data_format, time.monotonic() - began)
    return result, find_failures(run_dir, steps)


def read_recipe_result(run_dir: Path, data_format: str, seconds: float) -> RecipeResult:
    """Return the result of a recipe from its run's directory."""
    lines = read_metrics(run_dir)
    names = sorted({key for line in lines for key in line if key.startswith(_PART)})
    parts = {name.removeprefix(_PART): round(fmean(line.get(name, 0.0) for line in lines), 4) for name in names}
    return RecipeResult(
        loads=True,
        data_format=data_format,
        steps_run=len(lines),
        trained=_count_trained(run_dir / SUMMARY_FILE),
        rewards=_column(lines, "reward_mean"),
        losses=_column(lines, "loss"),
        grad_norms=_column(lines, "grad_norm"),
        reward_parts=parts if lines else None,
        seconds=round(seconds, 1),
    )


def _column(lines: Sequence[Mapping[str, float]], name: str) -> tuple[float, ...]:
    return tuple(round(line[name], 4) for line in lines if name in line)


def find_failures(run_dir: Path, steps: int) -> list[str]:
    """Return what is missing from a run of this many steps, one line each."""
    see, summary, lines = f"see {run_dir}", run_dir / SUMMARY_FILE, read_metrics(run_dir)
    if len(lines) < steps:
        return [f"{len(lines)} of {steps} steps, {see}"]
    if not summary.exists():
        return [f"it did not come to its end, {see}"]
    if not any(line.get("grad_norm") for line in lines):
        return [f"nothing was learned, every gradient is 0, {see}"]
    return [f"{line}, {see}" for line in orjson.loads(summary.read_bytes())["failed_checks"]]


def _count_trained(summary: Path) -> int:
    """Return the number of trained trajectories; 0 if the run did not finish."""
    return orjson.loads(summary.read_bytes())["trajectories"]["trained"] if summary.exists() else 0

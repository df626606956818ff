"""``longshore bench recipes``: run every recipe on this machine.

Every recipe but the demo's runs with other sizes, paths and times (:mod:`launch.bench.tiny_recipes`): a tiny
untrained model, the real server, real sandboxes, and tasks whose hidden test flips a coin, so that rewards
differ.  Each run is a separate process of the run's own command; a failure does not stop the others.
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
from typing import Annotated, cast

import orjson
from tyro.conf import Positional

from launch.bench.coin_tasks import write_coin_tasks
from launch.bench.kept_runs import OutputFolder, make_output_folder, require_empty_folder
from launch.bench.tiny_recipes import build_tiny_model, tiny_overrides
from launch.config import load_recipe, recipe_names
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

_OWN_RECIPES = {"demo", "instruct"}
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
    steps_run: int = 0
    trained: int = 0
    """Number of trained trajectories."""
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
    """Recipes; default: all but the demo."""
    steps: AtLeastOne = 2
    """Optimizer steps per recipe."""
    output: OutputFolder = None
    as_json: JsonFlag = False


def parse_options(given: RecipesArguments) -> RecipeBenchmarkOptions:
    """Check the arguments.  Raises UserError."""
    known = [name for name in recipe_names() if name not in _OWN_RECIPES]
    for name in given.recipes:
        if name not in known:
            raise UserError(f"{name}: the recipes to try are {', '.join(known)}{did_you_mean(name, known)}")
    return RecipeBenchmarkOptions(
        tuple(dict.fromkeys(given.recipes)) or tuple(known), given.steps, require_empty_folder(given.output)
    )


async def measure_recipes(options: RecipeBenchmarkOptions) -> RecipeBenchmarkReport:
    """Run each recipe, whatever the result of the others."""
    say = error_console().print
    output = make_output_folder(options.folder)
    say(f"runs: {output / 'runs'}")
    build_tiny_model(output / "model")
    write_coin_tasks(output / "tasks")
    bench = _Bench(output, options.steps)
    tried, failures = dict[str, RecipeResult](), list[str]()
    with ProcessReaper(secrets.token_hex(16), Path(tempfile.mkdtemp(prefix="ls-"))):
        for name in options.recipes:
            tried[name], why = await bench.run_recipe(name)
            failures += [f"{name}: {each}" for each in why]
            say(f"{name}: {tried[name].steps_run} steps in {tried[name].seconds:.0f} s")
    for line in failures:
        say(f"failed: {line}")
    if not failures and options.folder is None:
        shutil.rmtree(output)
    return RecipeBenchmarkReport(tried, failures)


@dataclass(frozen=True, slots=True)
class _Bench:
    folder: Path
    steps: int

    @property
    def runs_folder(self) -> Path:
        return self.folder / "runs"

    async def run_recipe(self, name: str) -> tuple[RecipeResult, list[str]]:
        """Run a recipe, and return its result and its failures, one line each."""
        try:
            load_recipe(name)
        except UserError as error:
            return RecipeResult(loads=False), [str(error)]
        values = self._values(name)
        try:
            run_preflight_checks(load_recipe(name, values))
        except UserError as error:
            return RecipeResult(loads=True), [str(error)]
        sets = [word for value in values for word in ("--set", value)]
        began = time.monotonic()
        await run_command(sys.executable, "-m", "launch.cluster", name, "--run-id", name, *sets)
        run_dir = self.runs_folder / name
        return read_recipe_result(run_dir, time.monotonic() - began), find_failures(run_dir, self.steps)

    def _values(self, name: str) -> tuple[str, ...]:
        return (
            *tiny_overrides(name),
            f"run.dir='{self.runs_folder}'",
            f"run.steps={self.steps}",
            f"model.path='{self.folder / 'model'}'",
            f"data.path='{self.folder / 'tasks'}'",
        )


def read_recipe_result(run_dir: Path, seconds: float) -> RecipeResult:
    """Return the result of a recipe from its run's directory."""
    lines = read_metrics(run_dir)
    names = sorted({key for line in lines for key in line if key.startswith(_PART)})
    parts = {name.removeprefix(_PART): round(fmean(line.get(name, 0.0) for line in lines), 4) for name in names}
    return RecipeResult(
        loads=True,
        steps_run=len(lines),
        trained=_count_trained(run_dir / SUMMARY_FILE),
        reward_parts=parts if lines else None,
        seconds=round(seconds, 1),
    )


def find_failures(run_dir: Path, steps: int) -> list[str]:
    """Return what is missing from a run of this many steps, one line each."""
    see, summary, done = f"see {run_dir}", run_dir / SUMMARY_FILE, len(read_metrics(run_dir))
    if done < steps:
        return [f"{done} of {steps} steps, {see}"]
    if not summary.exists():
        return [f"it did not come to its end, {see}"]
    return [f"{line}, {see}" for line in orjson.loads(summary.read_bytes())["failed_checks"]]


def _count_trained(summary: Path) -> int:
    """Return the number of trained trajectories; 0 if the run did not finish."""
    return orjson.loads(summary.read_bytes())["trajectories"]["trained"] if summary.exists() else 0

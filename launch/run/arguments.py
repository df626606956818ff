"""The command line of ``python -m launch.cluster``.

Every option that has a key in the configuration is an override of that key, so that there is one place where values are
checked, and ``--set`` can say all of it.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import dataclass

from launch.config import NegativeControl, RunConfig, load_recipe, recipe_names
from launch.config.command_line import (
    NEWEST_RUN,
    format_model_overrides,
    format_overrides,
    require_nonempty,
    run_to_resume,
)
from protocol.cli.parser import CommandLineParser, require_utf8
from protocol.errors import UserError
from protocol.staleness import AdmissionMode

DEFAULT_RECIPE = "demo"
"""What is run when neither a recipe nor a run to resume is named."""


@dataclass(frozen=True, slots=True)
class ClusterArguments:
    recipe: str
    """Name or path; empty only together with ``resume``."""
    chosen: bool
    """Whether ``recipe`` was named; where neither it nor ``resume`` was, it is :data:`DEFAULT_RECIPE`."""
    overrides: tuple[str, ...]
    """``section.key=value``, in the order given; the last one counts."""
    run_id: str | None
    """Name of a new run's directory; None for recipe and start time."""
    resume: str | None
    """Run to go on with, ``NEWEST`` for the newest one, None for a new run."""
    proof: bool
    """Run the controls too, and check what the evaluations must show."""
    dry_run: bool
    """Print the resolved configuration and stop."""

    def load_config(self) -> RunConfig:
        """The configuration of a new run.  Raises ConfigError or RecipeError."""
        return load_recipe(self.recipe, self.overrides)


def make_parser() -> CommandLineParser:
    made = CommandLineParser(
        prog="python -m launch.cluster",
        description="Train an agent asynchronously: rollout in sandboxes, GRPO, weights pushed in place.",
        epilog="Example: python -m launch.cluster --recipe demo --nodes 1 --set rollout.group_size=4",
        allow_abbrev=False,
    )
    add = made.add_argument
    add("--recipe", default="", metavar="NAME|PATH", help=f"one of: {', '.join(recipe_names())}; or a TOML file's path")
    add("--nodes", type=int, metavar="N", help="Ray nodes; simulated on this machine unless --address is given")
    add("--address", metavar="HOST:PORT", help="join this Ray cluster and wait for its nodes")
    add("--seed", type=int, metavar="N", help="seed of tasks, model, warm start and sampling")
    add("--steps", type=int, metavar="N", help="optimizer steps")
    add("--mode", choices=[mode.value for mode in AdmissionMode], help="when new episodes may start")
    add(
        "--model",
        metavar="FOLDER",
        help="Hugging Face folder of a dense Qwen2.5 or Qwen3 (told its tools, no warm start)",
    )
    add("--task-ids", metavar="IDS", help="only these tasks of data.path: ids, numbers and ranges, 101-110,fix-git")
    add("--run-id", metavar="ID", help="name of the run's directory; default: recipe and start time")
    resumed = "go on with a run from its newest whole checkpoint; without ID that of --run-id, else the recipe's newest"
    add("--resume", nargs="?", const=NEWEST_RUN, metavar="ID", help=resumed)
    add("--set", action="append", default=[], metavar="KEY=VALUE", help="override one key, for example run.steps=12")
    add("--proof", action="store_true", help="also run the controls, and check the difference they must show")
    add(
        "--control",
        choices=[control.value for control in NegativeControl],
        help="make this run a control that cannot learn",
    )
    add("--no-monitor", action="store_true", help="do not serve the live page")
    add("--json", action="store_true", help="print the summary as one JSON object on standard output")
    add("--dry-run", action="store_true", help="print the resolved configuration and stop")
    return made


def parse_arguments(argv: Sequence[str] | None = None) -> ClusterArguments:
    """Read a command line (``sys.argv`` by default).  Raises UserError."""
    words = sys.argv[1:] if argv is None else argv
    require_utf8(words)
    given = make_parser().parse_args(words)
    require_nonempty(
        {"--address": given.address, "--model": given.model, "--task-ids": given.task_ids, "--run-id": given.run_id}
    )
    resume = run_to_resume(given.resume, given.run_id)
    if given.proof and given.control not in {None, NegativeControl.NONE.value}:
        raise UserError("--proof runs every control by itself: leave --control out")
    if given.proof and resume is not None:
        raise UserError("--proof makes three new runs and --resume goes on with one: leave one of them out")
    if given.proof and given.dry_run:
        raise UserError("--dry-run shows one run's configuration and --proof makes three runs: leave one of them out")
    return ClusterArguments(
        recipe=given.recipe or (DEFAULT_RECIPE if resume is None else ""),
        chosen=bool(given.recipe) or resume is not None,
        overrides=(*_overrides(given), *given.set),
        run_id=given.run_id if resume is None else None,
        resume=resume,
        proof=given.proof,
        dry_run=given.dry_run,
    )


def _overrides(given: argparse.Namespace) -> list[str]:
    """The options that are keys of the configuration, as overrides."""
    keys: dict[str, str | int | None] = {
        "cluster.nodes": given.nodes,
        "cluster.address": given.address,
        "run.seed": given.seed,
        "run.steps": given.steps,
        "run.mode": given.mode,
        "run.negative_control": given.control,
        "data.task_ids": given.task_ids,
    }
    found = [*format_overrides(keys), *format_model_overrides(given.model)]
    if given.no_monitor:
        found.append("monitor.enabled=false")
    return found

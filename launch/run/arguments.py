"""The command line of ``longshore cluster``.

Every option that has a key in the configuration is an override of that key, so that there is one place where values are
checked, and ``--set`` can say all of it.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Annotated, Self

from pydantic import model_validator

from launch.config import RunConfig
from launch.config.command_line import (
    DEFAULT_RECIPE,
    ModelFolder,
    NodeCount,
    PublishedAgent,
    RecipeName,
    Resume,
    RunName,
    config_key,
    format_agent_overrides,
    format_model_overrides,
    key_overrides,
    require_nonempty,
    run_to_resume,
)
from launch.config.recipe_environment import RecipeInEnvironment, load_recipe_in
from launch.settings.run import NegativeControl
from protocol.cli.arguments import CommandArguments, Flag, JsonFlag, Overrides, one_of, option, parse_arguments
from protocol.errors import UserError
from protocol.staleness import AdmissionMode


class ClusterArguments(CommandArguments):
    """Train an agent asynchronously: rollouts in sandboxes, GRPO, weights updated in place. Default recipe: demo.

    Example: longshore cluster demo --nodes 1 --set rollout.group_size=4
    """

    recipe: RecipeName = ""
    nodes: NodeCount = None
    address: Annotated[str | None, option("HOST:PORT"), config_key("cluster.address")] = None
    seed: Annotated[int | None, option("N"), config_key("run.seed")] = None
    steps: Annotated[int | None, option("N"), config_key("run.steps")] = None
    mode: Annotated[AdmissionMode | None, one_of(AdmissionMode), option(), config_key("run.mode")] = None
    negative_control: Annotated[
        NegativeControl | None, one_of(NegativeControl), option(), config_key("run.negative_control")
    ] = None
    task_ids: Annotated[str | None, option("IDS"), config_key("data.task_ids")] = None
    model: ModelFolder = None
    agent: PublishedAgent = None
    run_id: RunName = None
    resume: Resume = None
    overrides: Overrides = ()
    proof: Flag = False
    """Also run the negative controls, and check the expected differences."""
    no_monitor: Flag = False
    """Do not serve the live page."""
    as_json: JsonFlag = False
    dry_run: Flag = False
    """Print the resolved configuration as TOML, which is itself a recipe, and exit."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        """Raise UserError for options that contradict each other."""
        options = {"--address": self.address, "--model": self.model, "--task-ids": self.task_ids}
        require_nonempty(options | {"--run-id": self.run_id})
        resumed = self.resumed_run
        if self.proof and self.negative_control not in {None, NegativeControl.NONE}:
            raise UserError("--proof runs every negative control by itself: leave --negative-control out")
        if self.proof and resumed is not None:
            raise UserError("--proof makes three new runs and --resume continues one: leave one of them out")
        if self.proof and self.dry_run:
            raise UserError(
                "--dry-run shows one run's configuration and --proof makes three runs: leave one of them out"
            )
        return self

    @property
    def is_default_recipe(self) -> bool:
        """Whether neither a recipe nor a run to resume was named."""
        return not self.recipe and self.resume is None

    @property
    def recipe_name(self) -> str:
        """Name or path of the recipe; empty only where a run is resumed."""
        return self.recipe or (DEFAULT_RECIPE if self.resume is None else "")

    @property
    def resumed_run(self) -> str | None:
        """The run to resume, an empty string for the newest one, None for a new run.  Raises UserError."""
        return run_to_resume(self.resume, self.run_id)

    @property
    def new_run_id(self) -> str | None:
        """Name of a new run's directory; None for recipe and start time."""
        return self.run_id if self.resume is None else None

    def config_overrides(self) -> tuple[str, ...]:
        """Return ``section.key=value`` for every option that is a key, in the order in which the last one counts."""
        monitor = ["monitor.enabled=false"] if self.no_monitor else []
        shared = (*format_model_overrides(self.model), *format_agent_overrides(self.agent))
        return (*key_overrides(self), *shared, *monitor, *self.overrides)

    def load_config(self) -> RunConfig:
        """Return the configuration of a new run.  Raises ConfigError or RecipeError."""
        return self.load_in_environment().config

    def load_in_environment(self) -> RecipeInEnvironment:
        """Do the same, with remarks about the environment variables that the recipe reads."""
        return load_recipe_in(os.environ, self.recipe_name, self.config_overrides())


def parse_cluster_arguments(words: Sequence[str]) -> ClusterArguments:
    """Read a command line.  Raises UserError."""
    return parse_arguments(ClusterArguments, words, "longshore cluster")

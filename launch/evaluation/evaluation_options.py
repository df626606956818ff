"""The command line of ``longshore evaluate``, and the part of it that a score depends on."""

from __future__ import annotations

import re
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Self

from pydantic import Field, model_validator
from tyro.conf import UseAppendAction

from actors.rollout.policy import EVALUATION_TEMPERATURE
from launch.config import RunConfig
from launch.config.command_line import (
    EVALUATION_RECIPE,
    PublishedAgent,
    RecipeName,
    format_agent_overrides,
    require_nonempty,
)
from launch.evaluation.results.evaluation_folder import EVALUATIONS_FOLDER, EvaluationSpec, ScoreSetting
from launch.evaluation.task_selection import TaskSelection
from launch.run_records.stored_config import flat_config
from protocol.cli.arguments import CommandArguments, Count, Flag, JsonFlag, Overrides, TaskPatterns, option, repeatable
from protocol.errors import UserError
from protocol.settings import split_commas
from sandbox.tasks.dataset_catalog import CATALOG_FILE

_SCORE_KEYS = (
    *("agent.", "reward.", "rollout.reward", "sandbox.image", "sandbox.allow_hosts"),
    *("sandbox.command_timeout_s", "sandbox.grade_timeout_s"),
)
"""Keys of a recipe that a score depends on; a final dot means the whole section."""
MAX_ATTEMPTS = 10_000
"""Limit of attempts at each task: more is a typing error and would exhaust memory before anything runs."""
_SHORT = re.compile(r"[^A-Za-z0-9._-]+")
_URL = re.compile(r"https?://[^\s/?#]")


class SolverKind(StrEnum):
    """Solver of the tasks."""

    SERVED = "served"
    """A model in a folder, which is served here."""
    URL = "url"
    """A model behind OpenAI's chat API."""
    ORACLE = "oracle"
    """The tasks' own solutions."""
    NOOP = "noop"
    """Nothing."""

    @property
    def samples(self) -> bool:
        """Whether it samples from a model."""
        return self in {SolverKind.SERVED, SolverKind.URL}


def score_settings(config: RunConfig) -> dict[str, ScoreSetting]:
    """Return ``section.key`` → value of the configuration that a score depends on."""
    return {key: _plain(value) for key, value in flat_config(config).items() if key.startswith(_SCORE_KEYS)}


def _plain(value: object) -> ScoreSetting:
    return value if isinstance(value, str | int | float | bool) else str(value)


class EvaluateArguments(CommandArguments):
    """Evaluate a model, or the tasks' own solutions, on tasks: pass@k, errors by stage, tokens.

    The recipe gives the agent, its limits, its reward and the engine.

    Example: longshore evaluate --model /models/qwen3 --tasks ./tasks --attempts 8
    """

    recipe: RecipeName = EVALUATION_RECIPE
    model: Annotated[str | None, option("PATH|URL")] = None
    """Model folder (served locally), or an OpenAI-compatible URL. Give exactly one of --model, --oracle and --noop."""
    oracle: Flag = False
    """Instead of a model, run the tasks' own solutions."""
    noop: Flag = False
    """Instead of a model, do nothing: the score that tasks give without any work."""
    agent: PublishedAgent = None
    tasks: Annotated[str, option("LABEL|PATH")]
    """Label of a data set (longshore-bench, longshore-web, longshore-swe, or one of datasets.toml), a folder, or a file
    of rows."""
    datasets: Annotated[Path, option("FILE")] = Path(CATALOG_FILE)
    """File that defines data set labels."""
    only: TaskPatterns = ()
    task_ids: UseAppendAction[Annotated[tuple[str, ...], repeatable("IDS")]] = ()
    """Only these tasks: ids, numbers, ranges and KEY=GLOB, for example 101-110,fix-git,difficulty=easy."""
    limit: Annotated[int | None, option("N"), Field(ge=1)] = None
    """Only the first N of these tasks."""
    attempts: Annotated[int, option("N"), Field(ge=1, le=MAX_ATTEMPTS)] = 8
    """Attempts per task."""
    concurrency: Annotated[int | None, option("N"), Field(ge=1)] = None
    """Concurrent attempts; default: the recipe's rollout.episodes_per_worker."""
    temperature: Annotated[float, option("X"), Field(ge=0)] = EVALUATION_TEMPERATURE
    """Sampling temperature."""
    greedy: Flag = False
    """Take the likeliest token each time instead of sampling."""
    seed: Count = 0
    """Seed of sampling and of confidence intervals."""
    model_name: Annotated[str, option("NAME")] = ""
    """Name of the model at the URL; default: the first that it lists."""
    key_file: Annotated[Path | None, option("FILE")] = None
    """File with the URL's API key on one line."""
    output: Annotated[Path | None, option("FOLDER")] = None
    """Folder of the evaluation; default: evaluations/RECIPE-MODEL-TASKS, with the --agent before the tasks."""
    overrides: Overrides = ()
    retry_errors: Flag = False
    """Retry attempts that infrastructure failed."""
    save_trajectories: Flag = False
    """Write trajectories.jsonl too, and for SWE-SYNTH's bugs and tasks of the web samples.jsonl."""
    no_record: Flag = False
    """Do not record the terminals that longshore compare shows."""
    dry_run: Flag = False
    """Print what would run as TOML, and exit."""
    as_json: JsonFlag = False

    @model_validator(mode="after")
    def _one_solver(self) -> Self:
        if [self.model is not None, self.oracle, self.noop].count(True) != 1:
            raise UserError("give exactly one of --model, --oracle and --noop; see longshore evaluate --help")
        return self

    @property
    def solver(self) -> SolverKind:
        if self.oracle:
            return SolverKind.ORACLE
        if self.noop:
            return SolverKind.NOOP
        return SolverKind.URL if _URL.match(self.model or "") else SolverKind.SERVED

    @property
    def selected_task_ids(self) -> tuple[str, ...]:
        return split_commas(",".join(self.task_ids))

    @property
    def config_overrides(self) -> tuple[str, ...]:
        """``section.key=value`` for every option that is a key, in the order in which the last one counts."""
        return (*format_agent_overrides(self.agent), *self.overrides)

    @property
    def folder(self) -> Path:
        """Folder of the evaluation, the same each time for the same evaluation."""
        path = (self.model or "").rstrip("/").rpartition("/")[2]
        solver = path if self.solver is SolverKind.SERVED else self.model_name or self.model or self.solver
        parts = (Path(self.recipe).stem, solver, *filter(None, [self.agent]), Path(self.tasks).stem)
        return self.output or EVALUATIONS_FOLDER / "-".join(_SHORT.sub("_", part).strip("_") for part in parts)

    def check(self) -> None:
        """Raise UserError for options that do not go together or name nothing on this machine."""
        require_nonempty({"--model": self.model, "--tasks": self.tasks, "--only": self.only})
        read_key(self.key_file)
        solver, model = self.solver, self.model or ""
        if solver is SolverKind.SERVED and not Path(model).is_dir():
            raise UserError(
                f"{model!r} is neither a folder nor a URL: give --model the folder of a checkpoint, or "
                "http://HOST:PORT/v1"
            )
        if solver is not SolverKind.URL and (self.model_name or self.key_file):
            raise UserError("--model-name and --key-file need a model at a URL: leave them out, or give --model URL")
        if not self.temperature and not self.greedy and solver.samples:
            raise UserError("sampling at --temperature 0 takes the likeliest token: write --greedy for that")
        if self.task_ids and not self.selected_task_ids:
            raise UserError("--task-ids names no task: write 101-110,fix-git, or leave it out for all")

    def build_spec(self, config: RunConfig, selection: TaskSelection) -> EvaluationSpec:
        """Return everything that the score depends on."""
        model = self.model or ""
        return EvaluationSpec(
            solver=self.solver.value,
            model=str(Path(model).absolute()) if self.solver is SolverKind.SERVED else model,
            model_name=self.model_name,
            temperature=self.temperature,
            greedy=self.greedy,
            seed=self.seed,
            prompt=config.agent.prompt_file,
            prompt_checksum=config.agent.make_spec().prompt.checksum,
            tasks=self.tasks,
            tasks_checksum=selection.checksum,
            recipe=score_settings(config),
        )


def read_key(file: Path | None) -> str:
    """Return the API key in ``file``, or "" without a file.  Raises UserError."""
    if file is None:
        return ""
    try:
        key = file.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"--key-file {file} cannot be read: {error}") from error
    if not key.isascii() or not key.isprintable() or not key:
        raise UserError(f"--key-file {file} holds no key: write the key into it on a single line")
    return key

"""The command line of ``python -m launch.evaluate``, and what of it makes two evaluations the same."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Annotated

from pydantic import Field
from tyro.conf import UseAppendAction, create_mutex_group

from launch.config import RunConfig
from launch.config.command_line import RecipeName, require_nonempty
from launch.evaluation.results.evaluation_folder import EVALUATIONS_FOLDER
from launch.evaluation.task_selection import TaskSelection
from launch.run_records.run_directory import config_tables
from protocol.cli.arguments import CommandArguments, Count, Flag, JsonFlag, Overrides, TaskGlobs, option
from protocol.errors import UserError
from protocol.events import JsonValue

_SCORE_KEYS = (
    *("agent.", "reward.", "rollout.reward", "sandbox.image", "sandbox.allow_hosts"),
    *("sandbox.command_timeout_s", "sandbox.grade_timeout_s"),
)
"""Keys of a recipe that a score depends on; a final dot means the whole section."""
MAX_ATTEMPTS = 10_000
"""At a task: more is a slip, and would take the memory before anything is run."""
_SHORT = re.compile(r"[^A-Za-z0-9._-]+")


class SolverKind(StrEnum):
    """Attempts the tasks."""

    SERVED = "served"
    """A folder, which is served here."""
    URL = "url"
    """A model somewhere, by OpenAI's chat API."""
    ORACLE = "oracle"
    NOOP = "noop"


@dataclass(frozen=True, slots=True)
class EvaluationOptions:
    recipe: str
    solver: SolverKind
    model: str
    """Folder or URL; empty for who needs none."""
    model_name: str
    """Of a model at a URL; empty until the server has been asked for it."""
    key_file: Path | None
    tasks: str
    datasets: Path
    only: tuple[str, ...]
    task_ids: tuple[str, ...]
    attempts: int
    concurrency: int | None
    temperature: float
    greedy: bool
    seed: int
    output: Path | None
    overrides: tuple[str, ...]
    retry_errors: bool
    save_trajectories: bool
    record: bool
    """Each attempt's terminal."""
    dry_run: bool

    def folder(self) -> Path:
        """The same for the same evaluation."""
        who = (
            self.model.rstrip("/").rpartition("/")[2]
            if self.solver is SolverKind.SERVED
            else self.model_name or self.model
        )
        parts = (Path(self.recipe).stem, who or self.solver, Path(self.tasks).stem)
        return self.output or EVALUATIONS_FOLDER / "-".join(_SHORT.sub("_", part).strip("_") for part in parts)

    def build_spec(self, config: RunConfig, chosen: TaskSelection) -> dict[str, JsonValue]:
        """All that a score depends on."""
        model = str(Path(self.model).absolute()) if self.solver is SolverKind.SERVED else self.model
        sampling: dict[str, JsonValue] = {"temperature": self.temperature, "greedy": self.greedy, "seed": self.seed}
        own: dict[str, JsonValue] = {"agent": self.solver.value, "model": model, "model name": self.model_name}
        prompt, tasks = config.agent.make_spec().prompt.checksum, chosen.checksum
        read: dict[str, JsonValue] = {"prompt": config.agent.prompt_file, "prompt's checksum": prompt}
        return {
            **own,
            **sampling,
            **read,
            "tasks": self.tasks,
            "tasks' checksum": tasks,
            "recipe": score_settings(config),
        }


def score_settings(config: RunConfig) -> dict[str, JsonValue]:
    """``section.key`` → value, of all that a score depends on."""
    return {
        f"{table}.{key}": _json(value)
        for table, keys in config_tables(config).items()
        for key, value in keys.items()
        if f"{table}.{key}".startswith(_SCORE_KEYS)
    }


def _json(value: object) -> JsonValue:
    return value if isinstance(value, str | int | float | bool) else str(value)


_SOLVER = create_mutex_group(required=True, title="who solves the tasks")


class EvaluateArguments(CommandArguments):
    """Evaluate a model, or a task's own solution, on tasks: pass@k, errors by stage, tokens.

    Example: longshore evaluate demo --model /models/qwen3 --tasks ./tasks --attempts 8
    """

    recipe: RecipeName
    model: Annotated[str | None, option("PATH|URL"), _SOLVER] = None
    """A folder, which is served here, or an OpenAI-compatible URL."""
    oracle: Annotated[bool, option(), _SOLVER] = False
    """Run the tasks' own solutions."""
    noop: Annotated[bool, option(), _SOLVER] = False
    """Do nothing: what tasks give for nothing."""
    tasks: Annotated[str, option("LABEL|PATH")]
    """A data set of datasets.toml, a folder, or a file of rows."""
    datasets: Annotated[Path, option("FILE")] = Path("datasets.toml")
    """File in which labels are looked up."""
    only: TaskGlobs = ()
    task_ids: UseAppendAction[Annotated[tuple[str, ...], option("IDS")]] = ()
    """Take only these tasks: ids, numbers and ranges, for example 101-110,fix-git."""
    attempts: Annotated[int, option("N"), Field(ge=1, le=MAX_ATTEMPTS)] = 8
    """Attempts at each task."""
    concurrency: Annotated[int | None, option("N"), Field(ge=1)] = None
    """Attempts at once; default: rollout.episodes_per_worker of the recipe."""
    temperature: Annotated[float, option("X"), Field(ge=0)] = 1.0
    """Temperature of sampling."""
    greedy: Flag = False
    """Take the likeliest token each time, instead of sampling."""
    seed: Count = 0
    """Seed of sampling and of confidence intervals."""
    model_name: Annotated[str, option("NAME")] = ""
    """The model at the URL; default: the first that it lists."""
    key_file: Annotated[Path | None, option("FILE")] = None
    """File with the API key of the URL, alone on one line."""
    output: Annotated[Path | None, option("FOLDER")] = None
    """Folder of the evaluation; default: evaluations/RECIPE-MODEL-TASKS."""
    overrides: Overrides = ()
    retry_errors: Flag = False
    """Try again what infrastructure failed."""
    save_trajectories: Flag = False
    """Write trajectories as JSON Lines."""
    no_record: Flag = False
    """Do not record terminals, which longshore compare shows."""
    dry_run: Flag = False
    """Print what would run as one JSON object, and stop."""
    as_json: JsonFlag = False


def parse_options(given: EvaluateArguments) -> EvaluationOptions:
    """Return what is to be evaluated.  Raises UserError."""
    require_nonempty({"--model": given.model, "--tasks": given.tasks, "--only": given.only})
    read_key(given.key_file)
    if given.oracle:
        solver = SolverKind.ORACLE
    else:
        solver = SolverKind.NOOP if given.noop else _solver_of_model(given.model or "")
    if solver is not SolverKind.URL and (given.model_name or given.key_file):
        raise UserError("--model-name and --key-file are of a model at a URL: leave them out, or give --model URL")
    if not given.temperature and not given.greedy and solver in {SolverKind.SERVED, SolverKind.URL}:
        raise UserError("sampling at --temperature 0 takes the likeliest token: write --greedy for that")
    return EvaluationOptions(
        recipe=given.recipe,
        solver=solver,
        model=given.model or "",
        model_name=given.model_name,
        key_file=given.key_file,
        tasks=given.tasks,
        datasets=given.datasets,
        only=given.only,
        task_ids=_parse_task_ids(",".join(given.task_ids)) if given.task_ids else (),
        attempts=given.attempts,
        concurrency=given.concurrency,
        temperature=given.temperature,
        greedy=given.greedy,
        seed=given.seed,
        output=given.output,
        overrides=given.overrides,
        retry_errors=given.retry_errors,
        save_trajectories=given.save_trajectories,
        record=not given.no_record,
        dry_run=given.dry_run,
    )


def _parse_task_ids(said: str) -> tuple[str, ...]:
    ids = tuple(each.strip() for each in said.split(",") if each.strip())
    if not ids:
        raise UserError("--task-ids names no task: write 101-110,fix-git, or leave it out for all")
    return ids


def _solver_of_model(model: str) -> SolverKind:
    if re.match(r"https?://[^\s/?#]", model):
        return SolverKind.URL
    if not Path(model).is_dir():
        raise UserError(
            f"{model!r} is neither a folder nor a URL: give --model the folder of a checkpoint, or http://HOST:PORT/v1"
        )
    return SolverKind.SERVED


def read_key(file: Path | None) -> str:
    """Empty for no file.  Raises UserError."""
    if file is None:
        return ""
    try:
        key = file.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"--key-file {file} cannot be read: {error}") from error
    if not key.isascii() or not key.isprintable() or not key:
        raise UserError(f"--key-file {file} holds no key: write it there, alone on one line")
    return key

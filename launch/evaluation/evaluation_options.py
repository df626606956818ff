"""The command line of ``python -m launch.evaluate``, and what of it makes two evaluations the same."""

from __future__ import annotations

import argparse
import re
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from launch.config import RunConfig
from launch.config.command_line import require_nonempty
from launch.evaluation.results.evaluation_folder import EVALUATIONS_FOLDER
from launch.evaluation.task_selection import TaskSelection
from launch.run_records.run_directory import config_tables
from protocol.cli.numbers import integer_between, number_at_least
from protocol.cli.parser import CommandLineParser
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


def build_parser() -> CommandLineParser:
    made = CommandLineParser(
        prog="python -m launch.evaluate",
        description="Evaluate a model, or a task's own solution, on tasks: pass@k, errors by stage, tokens.",
        epilog="Example: python -m launch.evaluate demo --model /models/qwen3 --tasks ./tasks --attempts 8",
    )
    add = made.add_argument
    add("recipe", metavar="RECIPE", help="whose agent, limits and reward these are: a name, or the path of a TOML file")
    who = made.add_mutually_exclusive_group(required=True)
    who.add_argument("--model", metavar="PATH|URL", help="a folder, which is served here, or an OpenAI-compatible URL")
    who.add_argument("--oracle", action="store_true", help="the tasks' own solutions")
    who.add_argument("--noop", action="store_true", help="nobody: what tasks give for nothing")
    add("--tasks", required=True, metavar="LABEL|PATH", help="a data set of datasets.toml, a folder, a file of rows")
    add("--datasets", type=Path, default=Path("datasets.toml"), metavar="FILE", help="where labels are looked up")
    add("--only", action="append", default=[], metavar="GLOB", help="names of tasks to take; !GLOB leaves out")
    add("--task-ids", action="append", metavar="IDS", help="tasks to take: ids, numbers and ranges, 101-110,fix-git")
    add(
        "--attempts",
        type=integer_between(1, MAX_ATTEMPTS),
        default=8,
        metavar="N",
        help="at each task (default: %(default)s)",
    )
    add(
        "--concurrency",
        type=integer_between(1),
        metavar="N",
        help="attempts at once (default: rollout.episodes_per_worker)",
    )
    add("--temperature", type=number_at_least(0), default=1.0, metavar="X", help="of sampling (default: %(default)s)")
    add("--greedy", action="store_true", help="the likeliest token each time, instead of sampling")
    add("--seed", type=integer_between(0), default=0, metavar="N", help="of sampling and of intervals (default: 0)")
    add("--model-name", default="", metavar="NAME", help="the model at the URL (default: the first that it lists)")
    add("--key-file", type=Path, metavar="FILE", help="holds the key of the URL, alone on one line")
    add("--output", type=Path, metavar="FOLDER", help="default: evaluations/RECIPE-MODEL-TASKS")
    add("--set", action="append", default=[], metavar="KEY=VALUE", help="override one key of the recipe")
    add("--retry-errors", action="store_true", help="try again what infrastructure failed")
    add("--save-trajectories", action="store_true", help="write what was said, as JSON Lines")
    add("--no-record", action="store_true", help="do not record terminals, which launch.compare shows")
    add("--dry-run", action="store_true", help="print what would run as one JSON object, and stop")
    add("--json", action="store_true", help="print the summary as one JSON object on standard output")
    return made


def parse_options(given: argparse.Namespace) -> EvaluationOptions:
    """Raises UserError."""
    require_nonempty({"--model": given.model, "--tasks": given.tasks, "--only": given.only})
    read_key(given.key_file)
    who = SolverKind.ORACLE if given.oracle else SolverKind.NOOP if given.noop else _solver_of_model(given.model)
    if who is not SolverKind.URL and (given.model_name or given.key_file):
        raise UserError("--model-name and --key-file are of a model at a URL: leave them out, or give --model URL")
    if not given.temperature and not given.greedy and who in {SolverKind.SERVED, SolverKind.URL}:
        raise UserError("sampling at --temperature 0 takes the likeliest token: write --greedy for that")
    return EvaluationOptions(
        recipe=given.recipe,
        solver=who,
        model=given.model or "",
        model_name=given.model_name,
        key_file=given.key_file,
        tasks=given.tasks,
        datasets=given.datasets,
        only=tuple(given.only),
        task_ids=_parse_task_ids(",".join(given.task_ids)) if given.task_ids is not None else (),
        attempts=given.attempts,
        concurrency=given.concurrency,
        temperature=given.temperature,
        greedy=given.greedy,
        seed=given.seed,
        output=given.output,
        overrides=tuple(given.set),
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

"""Prepares the model folder, the training tasks and the held-out tasks of a run."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path

from launch.config import RunConfig
from launch.data.demo.model import build_demo_model
from launch.data.prompt_lengths import describe_length, find_overlong_prompts, measure_first_prompts
from launch.data.task_split import split_tasks
from launch.data.warm_start_cache import find_cached_model
from learner.models.qwen import CONFIG_FILE, WEIGHTS_FILE, WEIGHTS_INDEX_FILE, read_qwen_config
from protocol.errors import UserError
from protocol.files.filesystem import build_folder
from sandbox.tasks.formats.generated.generator import held_out_tasks, training_tasks
from sandbox.tasks.formats.terminal_bench import load_task, write_task
from sandbox.tasks.task import Task


@dataclass(frozen=True, slots=True)
class PreparedRun:
    model_path: Path
    """Hugging Face folder, with tokenizer, of the model that the learner starts from."""
    warm_started: bool
    """Whether the model is already warmed up."""
    tasks: dict[str, Task] = field(default_factory=dict[str, Task])
    training_ids: tuple[str, ...] = ()
    """Task ids in the task sampler's order: families in rotation."""
    held_out_ids: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()
    """One line for each task that cannot be used."""
    notices: tuple[str, ...] = ()
    """Lines about the tasks as a whole."""


def prepare_run(config: RunConfig, run_dir: Path) -> PreparedRun:
    """Build or find the model and the tasks, which depend only on the configuration, so that a resume finds the same.

    Raises UserError if there is no usable model or no usable task.
    """
    model_path, warm = find_or_build_model(config, run_dir)
    add_tasks = _add_generated_tasks if config.data.generated else _add_dataset_tasks
    return _drop_overlong_prompts(config, add_tasks(config, PreparedRun(model_path, warm), run_dir))


def _add_generated_tasks(config: RunConfig, prepared: PreparedRun, run_dir: Path) -> PreparedRun:
    seed, data, count = config.run.seed, config.data, config.evaluation.tasks_per_family
    folder = run_dir / "tasks"
    train = _write_and_reload(
        folder / "training", training_tasks(seed, data.training_tasks, held_out_family=data.held_out_family)
    )
    held_out = _write_and_reload(folder / "held-out", held_out_tasks(seed, count, held_out_family=data.held_out_family))
    return replace(
        prepared,
        tasks={task.id: task for task in (*train, *held_out)},
        training_ids=tuple(task.id for task in train),
        held_out_ids=tuple(task.id for task in held_out),
    )


def _write_and_reload(parent: Path, tasks: list[Task]) -> list[Task]:
    """Write ``tasks`` as Terminal-Bench folders under ``parent``, where people can read and run them, and return them
    as read from there."""
    for task in tasks:
        if not (parent / task.id).exists():
            write_task(task, parent)
    return [load_task(parent / task.id) for task in tasks]


def find_or_build_model(config: RunConfig, run_dir: Path) -> tuple[Path, bool]:
    """Return the folder of the run's model, and whether it is already warm or needs no warm start.

    The model is a cached one after its warm start, that of ``model.path``, or a demo model built below ``run_dir``.
    Raises UserError if ``model.path`` lacks files.
    """
    if config.model.path is not None:
        require_model_files(config.model.path)
    if config.warm_start.enabled and (found := find_cached_model(config)) is not None:
        return found, True
    if config.model.path is not None:
        return config.model.path.absolute(), not config.warm_start.enabled
    folder = run_dir / "model"
    if not folder.exists():
        with build_folder(folder) as partial:
            build_demo_model(partial, config.model, config.run.seed)
    return folder, False


_REQUIRED_FILES = (
    (("config.json",), "model's configuration"),
    (("tokenizer_config.json",), "tokenizer"),
    (("tokenizer.json", "vocab.json"), "tokenizer's vocabulary"),
)
"""Alternative file names, and their content."""


def require_model_files(path: Path) -> Path:
    """Raise UserError unless ``path`` holds a model that the learner trains, and its tokenizer."""
    if not path.is_dir():
        raise UserError(f"{path} is not a folder: point --model at one saved with save_pretrained()")
    for each in path.iterdir():
        if each.exists() and not (each.is_file() or each.is_dir()):
            raise UserError(f"{each} is neither a file nor a folder, and reading it might never end: remove it")
    for names, what in _REQUIRED_FILES:
        if not any((path / name).exists() for name in names):
            raise UserError(
                f"{path} has no {' or '.join(names)}, so it holds no {what}: point --model at a folder saved with "
                "save_pretrained() by both the model and its tokenizer"
            )
    read_qwen_config(path)
    _check_readable(path)
    if not any((path / name).exists() for name in (WEIGHTS_INDEX_FILE, WEIGHTS_FILE)):
        raise UserError(
            f"{path} has no weights ({WEIGHTS_FILE} or {WEIGHTS_INDEX_FILE}): point --model at a folder saved with "
            "save_pretrained(), which writes safetensors"
        )
    return path


def _check_readable(path: Path) -> None:
    """Raise UserError unless transformers can read config.json, which is copied to the trained model's folder."""
    from huggingface_hub.errors import StrictDataclassError
    from transformers import AutoConfig

    try:
        AutoConfig.from_pretrained(path)  # pyright: ignore[reportUnknownMemberType]  # untyped library
    except (StrictDataclassError, OSError, ValueError, KeyError, TypeError) as error:
        why = str(error).strip().splitlines()[-1].strip()
        raise UserError(
            f"{path / CONFIG_FILE}: transformers cannot read it ({why}), nor could it read what was trained: copy or "
            "download the folder again"
        ) from error


def _add_dataset_tasks(config: RunConfig, prepared: PreparedRun, _: Path) -> PreparedRun:
    """Add the tasks at ``data.path``."""
    split = split_tasks(config)
    return replace(
        prepared,
        tasks={task.id: task for task in split.tasks},
        training_ids=split.training_ids,
        held_out_ids=split.held_out_ids,
        problems=split.problems,
        notices=split.notices,
    )


def _drop_overlong_prompts(config: RunConfig, prepared: PreparedRun) -> PreparedRun:
    """Drop the tasks whose first prompt leaves no room for a reply, because their rewards would never differ.  Raises
    UserError if no task is left."""
    lengths = measure_first_prompts(config, prepared.model_path, prepared.tasks.values())
    overlong = find_overlong_prompts(config, lengths)
    problems = tuple(
        f"{name}: its first prompt has {lengths[name]} tokens, and agent.context_tokens = {config.agent.context_tokens}"
        for name in overlong
    )
    training = tuple(name for name in prepared.training_ids if name not in overlong)
    if not training:
        shortest = min(prepared.training_ids, key=lengths.__getitem__)
        raise UserError(
            f"no task to train on leaves room for a reply: the shortest first prompt, of {shortest}, "
            f"{describe_length(config, lengths[shortest])} or more"
        )
    return replace(
        prepared,
        tasks={name: task for name, task in prepared.tasks.items() if name not in overlong},
        training_ids=training,
        held_out_ids=tuple(name for name in prepared.held_out_ids if name not in overlong),
        problems=(*prepared.problems, *problems),
    )

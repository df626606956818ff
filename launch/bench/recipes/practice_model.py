"""The model with which recipes are tried: a tiny one that ``longshore sft`` has trained on attempts at practice tasks.

It acts in each recipe's own form, and its attempts are right and wrong by chance, so that rewards differ in a group.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from itertools import cycle, islice
from pathlib import Path

import orjson

from actors.agents.registry import make_agent
from launch.bench.recipes.attempts import write_conversation
from launch.bench.recipes.opening_pages import read_opening_pages
from launch.bench.recipes.practice_sets import PRACTICE_SETS
from launch.bench.tiny_recipes import POSITIONS
from launch.config import RunConfig
from launch.data.task_split import split_tasks
from launch.processes.child_process import read_last_line, run_command
from protocol.errors import UserError
from protocol.events import JsonValue
from sandbox.tasks.formats.generated.generator import training_tasks
from sandbox.tasks.task import Task

UNTRAINED, TRAINED = "untrained", "model"
"""Folders of the model before and after, below the benchmark's."""
ATTEMPTS = 24
"""Number of attempts of each recipe in one epoch, some of them repeated: none is to be learned less well."""
_STEPS, _BATCH, _LR = 336, 4, 1e-2


async def train_practice_model(configs: Mapping[str, RunConfig], folder: Path) -> None:
    """Train the model on attempts in the configuration of each recipe.  Raises UserError if it cannot be trained."""
    data, log = folder / "attempts.jsonl", folder / "sft.log"
    with data.open("wb") as file:
        for name, config in configs.items():
            tasks = await read_opening_pages(read_tasks(config), config.agent.observation_chars)
            file.writelines(orjson.dumps(each) + b"\n" for each in write_attempts(name, config, tasks))
    options = {
        "--model": folder / UNTRAINED,
        "--data": data,
        "--output": folder / TRAINED,
        "--epochs": -(-_STEPS * _BATCH // (ATTEMPTS * len(configs))),
        "--batch-size": _BATCH,
        "--lr": _LR,
    }
    values = (
        f"run.dir='{folder / 'sft'}'",
        "run.disk_reserve_mb=64",
        f"learner.micro_batch_tokens={POSITIONS}",
        "learner.lr_warmup_steps=5",
    )
    words = [str(word) for option in options.items() for word in option]
    sets = [word for value in values for word in ("--set", value)]
    with log.open("wb") as said:
        ended = await run_command(sys.executable, "-m", "launch.sft", *words, *sets, log=said)
    if ended.exit_code:
        raise UserError(f"the tiny model was not trained: {read_last_line(log)}, see {log}")


def write_attempts(recipe: str, config: RunConfig, tasks: Sequence[Task]) -> Iterator[dict[str, JsonValue]]:
    """Yield a conversation for each attempt at each of a recipe's tasks, again and again up to :data:`ATTEMPTS`."""
    agent = make_agent(config.agent.make_spec())
    attempts = [(task, each) for task in tasks for each in PRACTICE_SETS[recipe].attempts(task)]
    for task, attempt in islice(cycle(attempts), ATTEMPTS):
        yield write_conversation(config.agent.kind, agent, task, attempt)


def read_tasks(config: RunConfig) -> Sequence[Task]:
    """Return the tasks of a run."""
    data = config.data
    if data.generated:
        return training_tasks(config.run.seed, data.training_tasks, held_out_family=data.held_out_family)
    return split_tasks(config).tasks

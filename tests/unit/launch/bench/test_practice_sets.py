"""If these fail, a recipe is tried on something else than its document's data, or on tasks that teach nothing."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from actors.agents.agent import AgentToolCall
from actors.agents.registry import make_agent
from launch.bench.recipes.attempts import AnswerAttempt, CommandAttempt, PageAttempt, write_conversation, write_replies
from launch.bench.recipes.practice_model import read_tasks, write_attempts
from launch.bench.recipes.practice_sets import PRACTICE_SETS
from launch.bench.tiny_recipes import tiny_overrides
from launch.config import RunConfig, load_recipe, recipe_names
from launch.data.conversations import parse_conversation
from launch.data.task_split import load_usable_tasks
from sandbox.tasks.dataset_catalog import read_catalog
from sandbox.tasks.formats.registry import TaskFormat, detect_format

FORMATS = {
    "art_liveweb": TaskFormat.LIVEWEB,
    "art_terminal": TaskFormat.SWE_BUG,
    "demo": TaskFormat.GENERATED,
    "grpo_tcr_qwen3_4b": TaskFormat.CODE,
    "instruct": TaskFormat.TERMINAL_BENCH,
    "openclaw_terminal": TaskFormat.OPENCLAW,
    "seta_miles_multinode": TaskFormat.MILES,
    "seta_qwen3_8b": TaskFormat.TERMINAL_BENCH,
}
"""Recipe → the format of its document's data."""


def load_practice(name: str, folder: Path) -> RunConfig:
    return load_recipe(name, (*tiny_overrides(name), *PRACTICE_SETS[name].write(folder / "data")))


def test_every_recipe_has_a_data_set_in_its_documents_format() -> None:
    assert list(FORMATS) == recipe_names()
    assert {name: practice.format for name, practice in PRACTICE_SETS.items()} == FORMATS


@pytest.mark.parametrize("name", [name for name in FORMATS if name != "demo"])
def test_a_data_set_is_read_as_what_it_says_and_all_of_it_can_be_graded(name: str, tmp_path: Path) -> None:
    config = load_practice(name, tmp_path)
    path = config.data.path
    assert path is not None
    data = read_catalog(path)[config.data.label].path if config.data.label else path
    assert detect_format(data) is FORMATS[name]
    found = load_usable_tasks(config)
    assert found.problems == ()
    assert len(found.tasks) == len(read_tasks(config)) >= 3
    assert all(task.gradable for task in found.tasks)


def test_the_first_repair_of_a_bug_is_right_and_the_others_are_not(tmp_path: Path) -> None:
    for task in read_tasks(load_practice("art_terminal", tmp_path)):
        for number, attempt in enumerate(PRACTICE_SETS["art_terminal"].attempts(task)):
            assert isinstance(attempt, CommandAttempt)
            for path, text in task.files.items():
                file = tmp_path / str(number) / path.removeprefix("/app/")
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_bytes(text)
            subprocess.run(attempt.command, shell=True, cwd=tmp_path / str(number), check=True)
            mended = {
                path: (tmp_path / str(number) / path.removeprefix("app/")).read_bytes() for path in task.solution_files
            }
            assert (mended == task.solution_files) == (number == 0)


@pytest.mark.parametrize("name", FORMATS)
def test_attempts_are_made_in_the_agents_own_form(name: str, tmp_path: Path) -> None:
    """The first reply acts and the last ends the episode; no reply is malformed."""
    config = load_practice(name, tmp_path)
    kind, agent = config.agent.kind, make_agent(config.agent.make_spec())
    for task in read_tasks(config):
        attempts = PRACTICE_SETS[name].attempts(task)
        assert len(set(attempts)) == len(attempts) >= 2
        for attempt in attempts:
            *acts, ends = map(agent.parse_reply, write_replies(kind, agent, attempt))
            assert all(isinstance(action, AgentToolCall) for each in acts for action in each.actions)
            assert len(acts) == (not isinstance(attempt, PageAttempt))
            assert not ends.is_malformed
            assert ends.final or not isinstance(attempt, AnswerAttempt)
    for conversation in write_attempts(name, config, read_tasks(config)):
        assert len(parse_conversation(conversation, name).trained_messages) == 2 - (name == "art_liveweb")


def test_an_agent_is_refused_an_attempt_that_it_cannot_make() -> None:
    config = load_recipe("art_terminal")
    (task, *_) = read_tasks(load_recipe("demo", tiny_overrides("demo")))
    with pytest.raises(ValueError, match="an agent of the kind bash makes no AnswerAttempt"):
        write_conversation(config.agent.kind, make_agent(config.agent.make_spec()), task, AnswerAttempt("1", "1"))

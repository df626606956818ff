"""Every command that the pages say to type: each without a mark, and those for which a Docker engine is enough. If
these fail, a newcomer's first commands end in an error. A page's commands run in its order, in a folder that has the
files that it shows, runs of the names that all pages use (made up: tests/support/fakes/fake_run.py), and tasks."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from launch.data.demo.hugging_face import save_tokenizer
from tests.support.documented_commands import PAGES, ROOT, CommandMark, read_commands
from tests.support.fakes.fake_run import write_fake_run
from tests.support.runs.journals import write_journal
from tests.support.runs.recorded_trajectories import tokenizer
from tests.support.typed_commands import lay_out, type_in

RUNS = ("demo-1", "demo-2", "a", "b")
README = ROOT / "README.md"
TASKS = ROOT / "docs" / "your-tasks.md"
MAY_FAIL = {"launch.doctor": frozenset({0, 1})}
"""Exit code 1 is a finding about this machine."""


def pages(mark: CommandMark) -> list[Path]:
    return [page for page in PAGES if any(command.mark is mark for command in read_commands(page))]


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs")
    for seed, name in enumerate(RUNS):
        write_fake_run(folder / name, steps=8, seed=seed)
        save_tokenizer(tokenizer(), folder / name / "model")
        write_journal(folder / name)
    return folder


@pytest.fixture
def folder(tmp_path: Path, runs: Path) -> Path:
    shutil.copytree(runs, tmp_path / "runs")
    lay_out(TASKS, tmp_path)
    shutil.copytree(tmp_path / "my-tasks", tmp_path / "tasks")
    return tmp_path


def type_in_page(page: Path, mark: CommandMark, folder: Path) -> None:
    lay_out(page, folder)
    for command in read_commands(page):
        if command.mark is mark:
            type_in(command, folder, codes=MAY_FAIL.get(command.module, frozenset({0})))


def test_the_commands_in_the_readme_do_what_they_say(folder: Path) -> None:
    type_in_page(README, CommandMark.NONE, folder)


@pytest.mark.slow
@pytest.mark.parametrize(
    "page", [page for page in pages(CommandMark.NONE) if page != README], ids=lambda page: page.name
)
def test_commands_without_a_mark_do_what_they_say(page: Path, folder: Path) -> None:
    type_in_page(page, CommandMark.NONE, folder)


@pytest.mark.docker
@pytest.mark.slow
@pytest.mark.parametrize("page", pages(CommandMark.DOCKER), ids=lambda page: page.name)
def test_commands_that_need_only_a_docker_engine_do_what_they_say(page: Path, folder: Path) -> None:
    type_in_page(page, CommandMark.DOCKER, folder)

"""If this fails, a person who made a small mistake waits for minutes, or reads a traceback instead of what to do."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from launch.config import load_recipe
from launch.data.preparation import prepare_run
from launch.data.task_split import load_usable_tasks
from protocol.cli.exit_codes import EXIT_USER
from tests.support.commands import call_json
from tests.support.runs.cluster_runs import RECIPE
from tests.support.tasks.coin_tasks import write_coin_tasks

pytestmark = pytest.mark.docker


class Refused:
    """Calls of ``longshore cluster`` that must be refused at once."""

    def __init__(self, folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
        self.folder, self._capfd = folder, capfd
        self.tasks = write_coin_tasks(folder / "tasks", 2)

    def __call__(self, *options: str, tasks: Path | None = None) -> str:
        """The one line on standard error; checks all that every refusal has in common."""
        places = (f"run.dir={self.folder / 'runs'}", f"data.path={tasks or self.tasks}")
        given = [word for place in places for word in ("--set", place)]
        done = call_json(self._capfd, "launch.cluster", *given, *options)
        assert done.exit_code == EXIT_USER, done.stderr
        (line,) = done.stderr.splitlines()
        assert done.output == {"error": line.removeprefix("error: "), "exit_code": EXIT_USER}
        assert "run directory" not in done.stderr, "it was refused too late"
        return line


@pytest.fixture
def refused(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> Refused:
    return Refused(tmp_path / "refused", capfd)


@pytest.fixture
def taken_port() -> Iterator[int]:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        yield listener.getsockname()[1]


MINI = (str(RECIPE),)


def test_a_docker_engine_that_does_not_answer_is_named_with_its_address(
    refused: Refused, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DOCKER_HOST", "unix:///nowhere/docker.sock")
    line = refused(*MINI)
    assert "no Docker engine answers at DOCKER_HOST=unix:///nowhere/docker.sock" in line
    assert "make setup" in line


def test_a_machine_that_was_not_set_up(refused: Refused, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LONGSHORE_HOME", str(tmp_path))
    line = refused(*MINI)
    assert "not set up for sandboxes" in line
    assert "longshore host up" in line


@pytest.mark.parametrize("key", ["monitor.port", "buffer.port"])
def test_a_port_in_use(refused: Refused, taken_port: int, key: str) -> None:
    line = refused(*MINI, "--set", "monitor.enabled=true", "--set", f"{key}={taken_port}")
    assert f"port {taken_port} is in use" in line
    assert f"--set {key}=PORT" in line


def test_an_unknown_key(refused: Refused) -> None:
    line = refused(*MINI, "--set", "rollout.group_sise=4")
    assert "did you mean 'rollout.group_size'?" in line
    assert "`longshore cluster demo --dry-run`" in line


def test_an_unknown_option(refused: Refused) -> None:
    assert "did you mean '--steps'?" in refused(*MINI, "--stepps", "4")


def test_an_unknown_recipe(refused: Refused) -> None:
    assert "did you mean 'demo'?" in refused("dmeo")


def test_a_run_directory_that_exists(refused: Refused) -> None:
    there = refused.folder / "runs" / "there"
    there.mkdir(parents=True)
    line = refused(*MINI, "--run-id", "there")
    assert all(way in line for way in ("is not a run", f"`rm -r {there}`", "--run-id NAME"))
    (there / "config.json").write_text("{}")
    line = refused(*MINI, "--run-id", "there")
    on = f"`longshore cluster --resume there --set run.dir={there.parent}`"
    assert all(way in line for way in ("no run is overwritten", on, "--run-id NAME"))


def test_a_run_to_resume_that_does_not_exist(refused: Refused) -> None:
    assert "no run 'nowhere' in" in refused("--resume", "nowhere")
    assert "leave --resume out" in refused(*MINI, "--resume")


def test_a_model_folder_without_tokenizer(refused: Refused, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    line = refused(*MINI, "--model", str(tmp_path))
    assert "has no tokenizer_config.json" in line
    assert "--model" in line


def test_a_model_that_the_learner_does_not_train(refused: Refused, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"model_type": "llama"}')
    for name in ("tokenizer_config.json", "tokenizer.json"):
        (tmp_path / name).write_text("{}")
    assert "the learner trains dense Qwen2.5 and Qwen3 models" in refused(*MINI, "--model", str(tmp_path))


def test_sampling_that_would_falsify_the_recorded_log_probabilities(refused: Refused) -> None:
    line = refused(*MINI, "--set", "sampling.top_p=0.9")
    assert "unknown key 'sampling.top_p': it would falsify the recorded log-probabilities" in line
    assert "leave it out (agent.temperature may be changed)" in line


def test_a_disk_without_room(refused: Refused) -> None:
    line = refused(*MINI, "--set", f"run.disk_reserve_mb={1 << 40}")
    assert "free some space" in line
    assert "--set run.dir=FOLDER" in line


def test_a_folder_without_a_usable_task(refused: Refused, tmp_path: Path) -> None:
    (tmp_path / "broken").mkdir()
    line = refused(*MINI, tasks=tmp_path)
    assert "has no usable task" in line
    assert "broken: task.yaml is missing" in line
    assert f"longshore tasks validate {tmp_path}" in line


def test_a_malformed_task_folder_is_named_and_the_others_go_on(tmp_path: Path) -> None:
    tasks = write_coin_tasks(tmp_path / "tasks", 3)
    (tasks / "coin-1" / "task.yaml").write_text("instruction: [unclosed")
    config = load_recipe(str(RECIPE), [f"data.path={tasks}", "warm_start.enabled=false"])
    dataset = load_usable_tasks(config)
    assert [task.id for task in dataset.tasks] == ["coin-0", "coin-2"]
    (problem,) = prepare_run(config, tmp_path).problems
    assert "coin-1: task.yaml is not readable YAML" in problem

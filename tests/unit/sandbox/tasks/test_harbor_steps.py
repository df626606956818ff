"""If these fail, a published task of several steps is dropped, or a step is played otherwise than in Harbor."""

from __future__ import annotations

from pathlib import Path

import pytest

from sandbox.images.image_names import images_of
from sandbox.tasks.formats.folders import load_task_folder, write_task_folder
from sandbox.tasks.formats.harbor.directory import HARBOR
from sandbox.tasks.loaded_task import LoadedTask
from sandbox.tasks.task import Task
from sandbox.tasks.task_containers import TaskHealthcheck, TestsEnvironment
from sandbox.tasks.task_grading import GradingLevel, StepsReward
from sandbox.tasks.task_network import NetworkMode, TaskNetwork

TWO = '[[steps]]\nname = "one"\n[[steps]]\nname = "two"\n'
FILES = {
    "environment/Dockerfile": "FROM debian\nWORKDIR /srv\nRUN true\n",
    "steps/one/instruction.md": "First.\n",
    "steps/two/instruction.md": "Then.\n",
    "tests/test.sh": "echo 1 > /logs/verifier/reward.txt",
}


def load(parent: Path, toml: str, files: dict[str, str] | None = None) -> LoadedTask:
    for path, text in {**FILES, **(files or {}), "task.toml": toml}.items():
        (parent / "a" / path).parent.mkdir(parents=True, exist_ok=True)
        (parent / "a" / path).write_text(text)
        (parent / "a" / path).chmod(0o755 if text.startswith("#!") else 0o644)
    return load_task_folder(HARBOR, parent / "a")


def read(parent: Path, toml: str, files: dict[str, str] | None = None) -> Task:
    loaded = load(parent, toml, files)
    assert loaded.remarks == ()
    task = loaded.require_task()
    assert load_task_folder(HARBOR, write_task_folder(HARBOR, task, parent / "again")).require_task() == task
    return task


def test_a_step_has_the_files_of_the_task_and_its_own(tmp_path: Path) -> None:
    files = {
        "tests/all": "all",
        "steps/one/tests/own": "own",
        "steps/two/tests/test.sh": "echo 0 > /logs/verifier/reward.txt",
        "steps/two/tests/all": "other",
        "solution/solve.sh": "true",
        "steps/two/solution/solve.sh": "touch x",
        "steps/two/solution/part": "part",
        "steps/two/workdir/setup.sh": "true",
        "steps/two/workdir/bin/run": "#!/bin/sh",
    }
    task = read(tmp_path, TWO, files)
    one, two = task.in_steps
    assert task.instruction == "First.\n\nThen."
    assert (task.run_tests, task.tests, task.solution, task.gradable, task.has_oracle) == ("", {}, "", True, True)
    assert (one.step_name, one.instruction, two.step_name, two.instruction) == ("one", "First.", "two", "Then.")
    assert (one.run_tests, one.tests) == (FILES["tests/test.sh"], {"all": b"all", "own": b"own"})
    assert (two.run_tests, two.tests) == (files["steps/two/tests/test.sh"], {"all": b"other"})
    assert (one.solution, one.solution_files) == ("true", {})
    assert (two.solution, two.solution_files) == ("touch x", {"part": b"part"})
    assert (task.steps[1].files, task.steps[1].executable) == (
        {"setup.sh": b"true", "bin/run": b"#!/bin/sh"},
        {"bin/run"},
    )
    assert (one.workdir, one.in_steps) == ("/srv", (one,))


def test_limits_users_and_variables_of_a_step_come_before_those_of_the_task(tmp_path: Path) -> None:
    one, two = read(
        tmp_path,
        '[agent]\ntimeout_sec = 30\nuser = "bob"\n[verifier]\ntimeout_sec = 40\nuser = "eve"\n'
        'env = {A = "1", B = "2"}\n'
        '[[steps]]\nname = "one"\n[[steps]]\nname = "two"\n'
        '[steps.agent]\ntimeout_sec = 5\nuser = 1000\n[steps.verifier]\ntimeout_sec = 6\nuser = "root"\n'
        'env = {B = "3", C = "${X:-c}"}\n[steps.healthcheck]\ncommand = "true"\nretries = 7\n',
    ).in_steps
    assert (one.agent_timeout_s, one.agent_user, one.tests_user, one.test_env) == (
        30,
        "bob",
        "eve",
        {"A": "1", "B": "2"},
    )
    assert one.test_timeout_s == 600, "in Harbor the task's limit of the verifier is no step's"
    assert (two.agent_timeout_s, two.agent_user, two.test_timeout_s, two.tests_user) == (5, "1000", 6, "root")
    assert two.test_env == {"A": "1", "B": "3", "C": "c"}
    assert (one.steps[0].healthcheck, two.steps[0].healthcheck) == (None, TaskHealthcheck("true", retries=7))


def test_only_the_last_step_may_end_what_the_agent_left_running(tmp_path: Path) -> None:
    task = read(tmp_path, TWO)
    assert [step.grading for step in task.in_steps] == [GradingLevel.LIVE, GradingLevel.SAME]
    looks = {"steps/two/tests/test.sh": "pgrep server && echo 1 > /logs/verifier/reward.txt"}
    (tmp_path / "b").mkdir()
    assert [step.grading for step in read(tmp_path / "b", TWO, looks).in_steps] == [GradingLevel.LIVE] * 2
    whole = load(tmp_path, TWO, {"longshore.yaml": "grading: live\n"}).require_task()
    assert [step.grading for step in whole.in_steps] == [GradingLevel.LIVE] * 2


def test_tests_may_have_a_container_of_their_own_in_some_steps(tmp_path: Path) -> None:
    toml = (
        'artifacts = ["/srv/a"]\n[verifier.environment]\ndocker_image = "debian"\n'
        '[[steps]]\nname = "one"\nartifacts = ["/srv/b"]\n'
        '[[steps]]\nname = "two"\n[steps.verifier]\nenvironment_mode = "shared"\n'
    )
    one, two = read(tmp_path, toml).in_steps
    assert (one.grading, one.artifacts, one.tests_environment) == (
        GradingLevel.ARTIFACTS,
        ("/logs/artifacts", "/srv/a", "/srv/b"),
        TestsEnvironment("debian"),
    )
    assert (two.grading, two.tests_environment) == (GradingLevel.SAME, None)


def test_a_step_s_tests_may_have_an_image_and_variables_of_their_own(tmp_path: Path) -> None:
    toml = (
        '[environment.env]\nA = "1"\n[verifier.environment]\ndocker_image = "checker:1"\n'
        '[[steps]]\nname = "one"\n[steps.verifier.environment]\ndocker_image = "checker:2"\nenv = {B = "2"}\n'
        '[[steps]]\nname = "two"\n'
    )
    task = read(tmp_path, toml)
    assert [step.tests_environment for step in task.in_steps] == [
        TestsEnvironment("checker:2", env={"B": "2"}),
        TestsEnvironment("checker:1"),
    ]
    assert [each.needed_by for each in images_of(task)][1:] == ["a/tests", "a/tests1"]


def test_a_step_s_tests_in_an_image_of_their_own_keep_the_task_s_network(tmp_path: Path) -> None:
    toml = (
        '[environment]\nnetwork_mode = "no-network"\n[verifier]\nnetwork_mode = "no-network"\n'
        '[[steps]]\nname = "one"\n[steps.verifier.environment]\ndocker_image = "checker:1"\n'
        '[[steps]]\nname = "two"\n'
    )
    assert read(tmp_path, toml).network == TaskNetwork(agent=NetworkMode.NONE, verify=NetworkMode.NONE)


def test_a_step_s_tests_may_be_in_an_image_that_they_build(tmp_path: Path) -> None:
    toml = (
        '[[steps]]\nname = "one"\nverifier = {environment_mode = "separate"}\n'
        '[[steps]]\nname = "two"\n[steps.verifier.environment]\nworkdir = "/t"\n'
    )
    files = {"steps/one/tests/Dockerfile": "FROM a\nCOPY . /tests\n", "steps/one/tests/x": "", "tests/y": ""}
    one, two = read(tmp_path, f'[environment.env]\nA = "1"\n{toml}', files).in_steps
    assert one.tests_environment is not None
    assert one.tests_environment.build is not None
    assert one.tests_environment.build.files.keys() == {"Dockerfile", "x"}
    assert (one.tests_environment.env, one.tests.keys()) == ({"A": "1"}, {"Dockerfile", "x"})
    assert (two.tests_environment, two.tests.keys()) == (TestsEnvironment(workdir="/t"), {"y"})


def test_a_step_s_table_changes_the_container_of_the_tasks_own_image(tmp_path: Path) -> None:
    toml = (
        '[[steps]]\nname = "one"\n[steps.verifier.environment]\nworkdir = "/t"\ncpus = 2\n'
        '[[steps]]\nname = "two"\nverifier = {environment_mode = "separate"}\n'
    )
    files = {"tests/Dockerfile": "FROM a\nCOPY . /tests\n", "steps/one/tests/own": ""}
    one, two = read(tmp_path, toml, files).in_steps
    assert one.tests_environment is not None
    assert two.tests_environment is not None
    assert one.tests_environment.build == two.tests_environment.build
    assert (one.tests_environment.workdir, one.tests_environment.cpus, two.tests_environment.workdir) == ("/t", 2, "")
    assert "own" not in one.tests


def test_the_tasks_commands_that_collect_come_before_those_of_a_step(tmp_path: Path) -> None:
    toml = (
        '[[verifier.collect]]\ncommand = "all"\n[[steps]]\nname = "one"\n[[steps.verifier.collect]]\ncommand = "one"\n'
    )
    steps = read(tmp_path, f'{toml}[[steps]]\nname = "two"').in_steps
    assert [[each.command for each in step.collect] for step in steps] == [["all", "one"], ["all"]]


@pytest.mark.parametrize(
    ("line", "wanted"),
    [("", {}), ("min_reward = 1", {"reward": 1.0}), ("min_reward = {a = 0.5, b = 1}", {"a": 0.5, "b": 1.0})],
)
def test_a_step_may_ask_for_rewards(tmp_path: Path, line: str, wanted: dict[str, float]) -> None:
    task = read(
        tmp_path, f'multi_step_reward_strategy = "final"\n[[steps]]\nname = "one"\n{line}\n[[steps]]\nname = "two"'
    )
    assert (task.steps[0].min_rewards, task.steps_reward) == (wanted, StepsReward.FINAL)


@pytest.mark.parametrize(
    ("toml", "files", "what"),
    [
        ('[[steps]]\nname = "three"', {}, "steps/three/instruction.md is missing or empty"),
        ('[[steps]]\nname = "one"\n[[steps]]\nname = "ONE"', {}, "the step name 'one'"),
        ('[[steps]]\nname = "../one"', {}, "task.toml: steps.0.name"),
        ('[[steps]]\nname = "one"\nmin_reward = "high"', {}, "task.toml: steps.0.min_reward"),
        ('multi_step_reward_strategy = "best"\n[[steps]]\nname = "one"', {}, "task.toml: multi_step_reward_strategy"),
        ('[[steps]]\nname = "one"\n[steps.agent.env]\nA = "1"', {}, "task.toml: steps.one.agent.env"),
        (
            '[[steps]]\nname = "one"\n[steps.agent]\nnetwork_mode = "no-network"',
            {},
            "task.toml: steps.one: the network",
        ),
        (
            '[[steps]]\nname = "one"\n[steps.verifier.environment]\ngpus = 1',
            {},
            "task.toml: steps.one.verifier.environment.gpus",
        ),
        (
            '[[steps]]\nname = "one"\n[steps.verifier]\nenvironment_mode = "separate"',
            {"steps/one/tests/docker-compose.yaml": "services: {}"},
            "task.toml: steps/one/tests/docker-compose.yaml",
        ),
        (
            '[[steps]]\nname = "one"\n[[steps.verifier.collect]]\ncommand = "true"\nservice = "db"',
            {},
            "task.toml: steps.one.verifier.collect of the service db",
        ),
        ('[[steps]]\nname = "one"', {"steps/one/trajectory.json": "{}"}, "steps/one/trajectory.json"),
        ("", {"instruction.md": "Do it.", "trajectory.json": "{}"}, "trajectory.json"),
        (TWO, {"weights.json": '{"a": 1}'}, "weights beside steps"),
        (TWO, {"foils/a.sh": "true"}, "foils beside steps"),
        (TWO, {"longshore.yaml": "grading: commit\n"}, "grading commit beside steps"),
    ],
)
def test_what_cannot_be_followed_is_named(tmp_path: Path, toml: str, files: dict[str, str], what: str) -> None:
    assert [each.what for each in load(tmp_path, toml, files).problems if each.what.startswith(what)]


def test_a_step_without_a_script_of_tests_is_named(tmp_path: Path) -> None:
    (tmp_path / "a" / "tests").mkdir(parents=True)
    found = load(tmp_path, TWO, {"tests/test.sh": ""})
    assert [each.what for each in found.problems][:2] == [
        f"steps/{name}/tests/test.sh is missing" for name in ("one", "two")
    ]


def test_what_harbor_does_not_look_at_either_is_remarked(tmp_path: Path) -> None:
    files = {"instruction.md": "Not this.", "steps/old/instruction.md": "", "steps/one/note": ""}
    assert load(tmp_path, f"{TWO}color = 1\n[steps.agent]\nshape = 2", files).remarks == (
        "instruction.md is not used: each step has its own",
        "steps/old is not used: task.toml names no such step",
        "steps/one has files that are not used: note",
        "steps.two has keys that Harbor does not know either: color",
        "steps.two.agent has keys that Harbor does not know either: shape",
    )

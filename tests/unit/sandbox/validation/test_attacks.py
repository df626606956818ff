"""If these fail, an attack is not fitted to its task, or `longshore tasks attack` reports other earnings."""

from __future__ import annotations

import io
import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from protocol.errors import UserError
from sandbox.grading.grade_result import GradeResult
from sandbox.grading.isolation.decision import Isolation
from sandbox.grading.results.verdict import GradedTest, GradingOutcome
from sandbox.tasks.__main__ import COMMAND
from sandbox.tasks.task import Task, TaskStep
from sandbox.tasks.task_grading import GradingLevel
from sandbox.validation.attacks.attack import Attack, forged_reports
from sandbox.validation.attacks.progress import report_attack_progress
from sandbox.validation.attacks.report import report_attacks
from sandbox.validation.attacks.suite import ATTACKS
from sandbox.validation.attacks.trial import NOTHING, AttackResult, plan_trials, try_attacks
from sandbox.validation.proofs import ProofEnvironment
from tests.support.tasks.coin_tasks import write_coin_tasks

TESTS = b"import os\nfrom shop.cart import total\n\ndef test_a():\n    os.system('/srv/run --fast')\n"
TASK = Task("t", "", workdir="/srv/", tests={"test_outputs.py": TESTS}, reports=("/logs/verifier/reward.txt",))


def test_an_attack_knows_what_a_public_task_tells():
    words = Attack("x", "@app@ @folders@ @module@ @program@").plan(TASK)
    assert words == "/srv /logs/verifier /srv/shop/cart.py /srv/run"
    assert "PASSED test_a" in Attack("x", "@say@").plan(TASK)
    assert Attack("x", "@write@").plan(TASK) == "printf %s '1\n' > /logs/verifier/reward.txt"


def test_an_attack_is_left_out_where_the_task_has_not_what_it_needs():
    plain = replace(TASK, tests={"test_outputs.py": b"def test_a(): ..."}, reports=())
    assert [Attack("x", word).plan(plain) for word in ("@module@", "@program@", "@folders@")] == ["", "", ""]
    assert 0 < sum(bool(each.plan(plain)) for each in ATTACKS) < len(ATTACKS)
    assert all(each.plan(TASK) for each in ATTACKS)


def test_forged_reports_pass_every_expected_test():
    task = replace(TASK, expected_tests=("a",), reports=("/r/ctrf.json", "/r/junit.xml", "/r/reward.json"))
    assert forged_reports(task) == {
        "/r/ctrf.json": '{"results": {"tests": [{"name": "a", "status": "passed"}]}}',
        "/r/junit.xml": '<testsuite><testcase name="a"/></testsuite>',
        "/r/reward.json": '{"reward": 1}\n',
    }


def test_an_attack_earns_only_what_exceeds_doing_nothing():
    results = [
        AttackResult("t", NOTHING.name, 0.5),
        AttackResult("t", "lies", 0.5),
        AttackResult("t", "swaps", 1.0),
        AttackResult("u", NOTHING.name, 0.0),
        AttackResult("u", "lies", 0.0),
        AttackResult("u", "swaps", None, why="InfraError: gone"),
    ]
    lines: list[str] = []
    code, answer = report_attacks(results, lines.append)
    assert (code, answer["tasks"], answer["attacks"]) == (1, 2, 3)
    assert answer["earned"] == [
        {"task": "t", "attack": "swaps", "reward": 1.0, "isolation": "", "falsified": False, "why": ""}
    ]
    assert lines[-2:] == ["not tried on u: swaps: InfraError: gone", "1 of 3 attacks on 2 tasks earned something"]
    assert [line.split() for line in lines[:4]] == [
        ["attack", "tried", "earned", "best", "tasks"],
        ["nothing", "at", "all", "2", "0", "0.5"],
        ["lies", "2", "0", "0.5"],
        ["swaps", "1", "1", "1", "t"],
    ]
    assert report_attacks(results[:2], lines.append)[0] == 0


def test_a_task_that_cannot_be_tried_is_said_once_with_the_last_lines_of_its_reason():
    why = "BuildError: could not build x: step 3/3: RUN make\n1\n2\n3\nno rule"
    lines: list[str] = []
    results = [AttackResult("t", name, None, why=why) for name in (NOTHING.name, "lies", "swaps")]
    code, answer = report_attacks(results, lines.append)
    assert (code, answer["tasks"], answer["attacks"]) == (1, 1, 0)
    assert lines[-5:] == [
        "not tried on t: nothing at all and 2 more: BuildError: could not build x: step 3/3: RUN make",
        "  2",
        "  3",
        "  no rule",
        "0 of 0 attacks on 1 task earned something",
    ]


def test_doing_nothing_is_no_attack_whether_it_could_be_tried_or_not():
    lines: list[str] = []
    results = [AttackResult("t", NOTHING.name, None, why="InfraError: gone"), AttackResult("t", "lies", 0.0)]
    assert report_attacks(results, lines.append)[1]["attacks"] == 1
    assert lines[-1] == "0 of 1 attacks on 1 task earned something"


STEPPED = Task(
    "s",
    "",
    steps=(
        TaskStep("one", "", tests={"test_one.py": b""}, run_tests="true", grading=GradingLevel.LIVE),
        TaskStep("two", "", tests={"test_two.py": b"from shop.cart import total\n"}, run_tests="true"),
    ),
)


class RecordingSession:
    """Records the agent's commands; no container is behind it."""

    def __init__(self, commands: list[str]) -> None:
        self._commands = commands

    async def begin_step(self, step: Task) -> None:
        self._commands.append(f"step {step.step_name}")

    async def run(self, command: str, limit_s: float) -> None:
        self._commands.append(command)


def recording_environment(commands: list[str]) -> ProofEnvironment:
    """Every step of every task passes."""

    @asynccontextmanager
    async def acquire(_: Task) -> AsyncGenerator[Any]:
        yield RecordingSession(commands)

    async def grade(session: object, step: Task) -> GradeResult:
        passed = (GradedTest("a", GradingOutcome.PASSED),)
        return GradeResult(passed, {}, "", GradingLevel.LIVE, Isolation.LIVE, timed_out=False, ms=1.0)

    return ProofEnvironment(acquire, grade)


async def test_a_task_of_several_steps_is_attacked_in_each_step_that_offers_what_is_needed():
    commands: list[str] = []
    trials = plan_trials([STEPPED], [Attack("swaps", "rm @module@"), Attack("starts", "@program@")])
    assert [trial.attack.name for trial in trials] == [NOTHING.name, "swaps"]
    (_, result) = await try_attacks(trials, recording_environment(commands), 1)
    assert (result.reward, result.isolation, result.why) == (1.0, "live", "")
    assert commands == ["step one", "true", "step two", "true", "step one", "step two", "rm /app/shop/cart.py"]


async def test_each_result_is_shown_when_it_arrives():
    out = io.StringIO()
    trials = plan_trials([TASK], [Attack("lies", "true")])
    with report_attack_progress(3, Console(file=out)) as add:
        await try_attacks(trials, recording_environment([]), 1, on_result=add)
        add(AttackResult("u", "lies", None))
    assert out.getvalue().splitlines() == [
        "attacks: 1 of 3 done",
        "attacks: 2 of 3 done",
        "attacks: 3 of 3 done, 1 could not be tried",
    ]


def test_many_results_are_few_lines_without_a_terminal():
    out = io.StringIO()
    with report_attack_progress(1000, Console(file=out)) as add:
        for number in range(1000):
            add(AttackResult(f"{number}", "lies", 0.0))
    assert [line.split()[1] for line in out.getvalue().splitlines()] == [f"{100 * part}" for part in range(1, 11)]


def test_tasks_without_tests_are_not_attacked(tmp_path: Path):
    row = {"data_source": "math", "prompt": "1 + 1", "reward_model": {"ground_truth": "2"}}
    (tmp_path / "rows.jsonl").write_text(json.dumps(row) + "\n")
    with pytest.raises(UserError, match="could pass its tests: they have no tests, only answers to compare with"):
        COMMAND.call(["attack", str(tmp_path / "rows.jsonl")])


def test_a_set_of_which_nothing_can_be_used_says_so_before_an_attack(tmp_path: Path):
    (tmp_path / "rows.jsonl").write_text(json.dumps({"question": "1 + 1", "answer": "2", "choices": ["2"]}))
    with pytest.raises(UserError, match="none can be used, and longshore tasks validate names each problem"):
        COMMAND.call(["attack", str(tmp_path / "rows.jsonl")])


def test_tasks_without_artifacts_are_not_attacked_where_nothing_else_is_graded(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    write_coin_tasks(tmp_path)
    with pytest.raises(UserError, match="could pass its tests: they declare no artifacts"):
        COMMAND.call(["attack", str(tmp_path), "--level", "artifacts"])
    assert "8 of 8 tasks are left out: they declare no artifacts" in capsys.readouterr().out


def test_names_of_attacks_are_unique():
    assert len({each.name for each in ATTACKS}) == len(ATTACKS) >= 35

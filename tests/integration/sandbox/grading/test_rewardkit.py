"""If these fail, a task of Harbor's that is graded by its package rewardkit scores nothing without a network."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from sandbox.grading.grader import Isolation, grade_sandbox
from sandbox.pool.sandbox_pool import SandboxPool
from sandbox.tasks.formats.registry import load_tasks
from sandbox.tasks.network_policy import NetworkPolicy, apply_network_policy
from sandbox.tasks.task import Task
from tests.support.tasks.cheats.graders import grade_after

pytestmark = [
    pytest.mark.docker,
    pytest.mark.asyncio(loop_scope="session"),
    pytest.mark.usefixtures("verifier_half"),
]
SCRIPT = "#!/bin/bash\nuvx --from 'harbor-rewardkit==0.2.3' rewardkit /tests\n"
FILES = {
    "task.toml": 'version = "1.0"\n',
    "instruction.md": "Do it.\n",
    "environment/Dockerfile": "FROM debian:12\nWORKDIR /app\n",
    "solution/solve.sh": "true\n",
    "tests/test.sh": SCRIPT,
    "tests/answer/checks.py": (
        "import rewardkit as rk\n"
        'rk.file_contains("answer", "42", weight=3.0)\n'
        'rk.command_output_contains("cat answer", "4")\n'
    ),
    "tests/tidy/checks.py": (
        "from pathlib import Path\n"
        "from rewardkit import criterion\n"
        "@criterion\n"
        "def tidy(workspace: Path) -> float:\n"
        '    return 1.0 if (workspace / "answer").exists() and not (workspace / "junk").exists() else 0.0\n'
    ),
    "tests/reward.toml": '[[reward]]\nname = "reward"\n[reward.weights]\nanswer = 3\ntidy = 1\n',
}
ORACLE, HALF = "printf 42 > answer; rm -f junk", "printf 4 > answer; touch junk"
JUDGE = '[judge]\njudge = "some/model"\n[[criterion]]\ndescription = "Is it good?"\n'


def offline(folder: Path, more: dict[str, str]) -> Task:
    """Return the task of these files, without a network and in longshore's own image."""
    for path, text in (FILES | more).items():
        (folder / "t" / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / "t" / path).write_text(text)
    (task,) = load_tasks(folder / "t").tasks
    return apply_network_policy(replace(task, build=None, image="", workdir="/app"), NetworkPolicy.NONE)


async def test_programmatic_criteria_give_their_rewards_by_their_weights(pool: SandboxPool, tmp_path: Path):
    task = offline(tmp_path, {})
    async with pool.acquire(task) as session:
        for command, rewards in (
            ("true", {"answer": 0.0, "tidy": 0.0, "reward": 0.0}),
            (HALF, {"answer": 0.25, "tidy": 0.0, "reward": 0.1875}),
            (ORACLE, {"answer": 1.0, "tidy": 1.0, "reward": 1.0}),
        ):
            await session.run(f"cd /app && {command}", task.test_timeout_s)
            result = await grade_sandbox(session, task)
            assert dict(result.rewards) == rewards, result.log
            assert (result.reward, result.isolation) == (rewards["reward"], Isolation.SHARED)


@pytest.mark.parametrize(
    "script",
    [
        "uv tool install -q harbor-rewardkit && rewardkit /tests",
        "pip install -q harbor-rewardkit && python3 -m rewardkit /tests --workspace /app",
        "export PATH=$HOME/.local/bin:$PATH; uv tool install harbor-rewardkit; cd /; rewardkit /tests",
    ],
)
@pytest.mark.slow
async def test_rewardkit_is_installed_and_started_as_scripts_do(pool: SandboxPool, tmp_path: Path, script: str):
    task = offline(tmp_path, {"tests/test.sh": f"#!/bin/bash\n{script}\n"})
    result = await grade_after(pool, task, ORACLE)
    assert (result.reward, result.all_passed) == (1.0, True), result.log


@pytest.mark.parametrize(
    ("more", "what"),
    [
        ({"tests/quality.toml": JUDGE}, "needs-network rewardkit judge of /tests/quality.toml"),
        ({"tests/test.sh": SCRIPT.replace("0.2.3", "0.1.7")}, "needs-network uvx harbor-rewardkit==0.1.7"),
    ],
)
@pytest.mark.slow
async def test_what_only_a_network_could_give_is_named_and_voids_the_run(
    pool: SandboxPool, tmp_path: Path, more: dict[str, str], what: str
):
    result = await grade_after(pool, offline(tmp_path, more), ORACLE)
    assert (result.reward, result.score) == (None, 0.0)
    assert what in result.log
    assert "the tests wrote none of" in result.log

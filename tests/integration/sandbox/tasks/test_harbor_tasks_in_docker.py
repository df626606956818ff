"""If these fail, a task that Harbor rewards gets another reward here."""

from __future__ import annotations

from pathlib import Path

import pytest

from sandbox.pool.sandbox_pool import SandboxPool
from sandbox.tasks.formats.registry import load_tasks
from sandbox.tasks.network_policy import NetworkPolicy
from sandbox.validation.proofs import pool_proof_environment, prove_tasks

pytestmark = [pytest.mark.docker, pytest.mark.asyncio(loop_scope="session")]
TEXT, JSON = "/logs/verifier/reward.txt", "/logs/verifier/reward.json"
VARIABLES = """
environment.env = {A = "1", MODE = "${MODE:-fast}"}
agent.env = {D = "4"}
verifier.env = {B = "2"}
solution.env = {C = "3"}
"""
TASKS = {
    "writes-and-exits-1": ("", f"if [ -f a ]; then echo 1 > {TEXT}; exit 1; fi; echo 0 > {TEXT}", "touch a", 1.0),
    "partial-and-exits-1": ("", f"if [ -f a ]; then echo 0.6 > {TEXT}; exit 1; fi; echo 0 > {TEXT}", "touch a", 0.6),
    "above-one": ("", f"if [ -f a ]; then echo 2; else echo 0; fi > {TEXT}", "touch a", 2.0),
    "below-zero": ("", f"if [ -f a ]; then echo -1; else echo 0; fi > {TEXT}", "touch a", -1.0),
    "json-first": ("", f"echo 0 > {TEXT}; [ ! -f a ] || echo '{{\"reward\": 1}}' > {JSON}", "touch a", 1.0),
    "variables": (
        VARIABLES,
        f'if [ "$A$B$D$MODE" = 12fast ] && grep -qx 134 a; then echo 1; else echo 0; fi > {TEXT}',
        "echo $A$C$D > a",
        1.0,
    ),
    "health-check": (
        '[environment.healthcheck]\ncommand = "touch /app/healthy"\n',
        f"if [ -f healthy ] && [ -f a ]; then echo 1; else echo 0; fi > {TEXT}",
        "touch a",
        1.0,
    ),
    "collect": (
        """[[verifier.collect]]\ncommand = "ps aux | grep -c '[t]he-job' > running"\n""",
        f"if [ $(cat running) = 1 ]; then echo 1; else echo 0; fi > {TEXT}",
        "(exec -a the-job sleep 1000) > /dev/null 2>&1 & sleep 1",
        1.0,
    ),
    "working-directory": (
        '[environment]\nworkdir = "/srv"\n',
        f"if [ -f /srv/a ] && [ $PWD = /srv ]; then echo 1; else echo 0; fi > {TEXT}",
        "touch a",
        1.0,
    ),
    "folders-of-logs": (
        "",
        f"if [ -f a ]; then echo 1; else echo 0; fi > {TEXT}",
        "touch /logs/agent/x /logs/artifacts/y /logs/verifier/z && touch a",
        1.0,
    ),
}
"""Task → task.toml, test.sh, solve.sh, Harbor's reward of the oracle."""


async def test_the_oracle_of_each_task_gets_the_reward_that_harbor_gives(pool: SandboxPool, tmp_path: Path) -> None:
    for name, (toml, test, solution, _) in TASKS.items():
        files = {
            "task.toml": toml,
            "instruction.md": "Do it.",
            "environment/Dockerfile": f"FROM {pool.host.base_image}\nRUN mkdir -p /app\nWORKDIR /app\n",
            "tests/test.sh": test,
            "solution/solve.sh": solution,
        }
        for path, text in files.items():
            (tmp_path / name / path).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / name / path).write_text(text)
    found = load_tasks(tmp_path).with_network(NetworkPolicy.NONE, "")
    assert found.problems == ()
    proofs = await prove_tasks(found.tasks, pool_proof_environment(pool), 4, lambda _: None)
    assert {proof.task: (proof.oracle, proof.noop) for proof in proofs} == {
        name: (reward, 0.0) for name, (*_, reward) in TASKS.items()
    }

"""If these fail, a program that an agent gives in its last reply is not graded, or an example that it shows is."""

from __future__ import annotations

from dataclasses import replace

import pytest

from actors.rollout.reply_program import find_program_at_end
from actors.rollout.sandbox_terminal import SandboxTerminal
from sandbox.tasks.task import Task
from tests.support.actors.episodes import terminal_limits
from tests.support.fakes.fake_provider import FakeProvider, FakeSandbox

ADDS = "a, b = map(int, input().split())\nprint(a + b)\n"
TASK = Task(id="t", instruction="add", expected_tests=("a",), reply_program="/app/solution.py")


@pytest.mark.parametrize(
    ("reply", "program"),
    [
        (f"```python\n{ADDS}```", ADDS),
        (f"So:\n\n  ```Python\n{ADDS}  ```  \n\n", ADDS),
        (f"First\n```python\nprint(1)\n```\nno, rather\n```py\n{ADDS}```\n", ADDS),
        (f"A stray ``` in prose,\n``` another, and\n```python3\n{ADDS}```", ADDS),
        (f"````python\ntext = '''\n```\n'''\n{ADDS}````", f"text = '''\n```\n'''\n{ADDS}"),
        ("```python\n```", ""),
        ("1. So:\n\n   ```python\n   for i in 1, 2:\n\n       print(i)\n   ```", "for i in 1, 2:\n\n    print(i)\n"),
        (f"~~~python\n{ADDS}~~~", ADDS),
        (f"```python\n{ADDS}```\nand\n```", None),
        (f"```python\n{ADDS}~~~", None),
        (f"```python\n{ADDS}```\nUse it so:\n```sh\necho 1 2 | python3 solution.py\n```", None),
        (f"```python\n{ADDS}```\nIt adds two numbers.", None),
        (f"```\n{ADDS}```", None),
        (f"```pycon\n{ADDS}```", None),
        (f"```python\n{ADDS}", None),
        ("done", None),
        ("", None),
    ],
)
def test_a_program_is_the_block_of_python_with_which_a_reply_ends(reply: str, program: str | None):
    assert find_program_at_end(reply) == program


async def test_a_program_in_the_last_reply_is_tested_instead_of_the_file():
    for task, reply, written in (
        (TASK, f"```python\n{ADDS}```", {"/app/solution.py": ADDS.encode()}),
        (TASK, "It is in the file.", {}),
        (replace(TASK, reply_program=""), f"```python\n{ADDS}```", {}),
    ):
        sandbox = FakeSandbox(FakeProvider(), "c1", task)
        await SandboxTerminal(sandbox, task, terminal_limits()).grade(reply)
        assert sandbox.files == written

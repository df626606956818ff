"""Rows for practice in the form of ``open_agentrl_grpo_2k``, a few of each of its five sources."""

from __future__ import annotations

import json
from collections.abc import Sequence

from launch.bench.recipes.attempts import AnswerAttempt, Attempt
from sandbox.tasks.formats.rows import JsonRow
from sandbox.tasks.task import Task

_MATH = {
    "deepscaler": ("What is 3 + 4?", "3 + 4"),
    "omni_math": ("What is the largest integer whose square is below 50?", "int(50 ** 0.5)"),
    "numina_math": ("Solve 2x - 4 = 10 for x.", "(10 + 4) // 2"),
}
"""Data source → question, and the code of its answer, 7."""
_DOUBLE = "Write a program that reads an integer and prints its double."
_ADD = "Write a function add(a, b) that returns the sum."
_CODE = {
    "taco_code": (_DOUBLE, json.dumps({"inputs": ["2\n", "5\n"], "outputs": ["4\n", "10\n"]})),
    "leetcode_code": (_ADD, "assert add(1, 2) == 3\nassert add(2, 2) == 4"),
}
_PROGRAMS = {
    "taco_code": ("print(int(input()) * 2)", "print(int(input()) + 2)"),
    "leetcode_code": ("def add(a, b): return a + b", "def add(a, b): return a * b"),
}
"""Data source → a right program and a wrong one."""
REPEATS = 3
"""Number of rows of each source."""
HELD_OUT = tuple(f"{source}-{REPEATS - 1}" for source in (*_MATH, *_CODE))
"""Ids of the last row of each source."""


def grpo_tcr_rows() -> list[JsonRow]:
    truths = {source: (question, "7", "math") for source, (question, _) in _MATH.items()}
    truths |= {source: (question, tests, "code") for source, (question, tests) in _CODE.items()}
    return [
        {
            "data_source": source,
            "prompt": [{"role": "user", "content": question}],
            "ability": ability,
            "reward_model": {"ground_truth": truth, "style": "rule"},
            "agent_name": "tool_agent",
            "extra_info": {"index": number},
        }
        for number in range(REPEATS)
        for source, (question, truth, ability) in truths.items()
    ]


def attempt_row(task: Task) -> Sequence[Attempt]:
    """Return a right attempt and a wrong one.  Their code prints nothing, as a conversation has it."""
    if task.family in _MATH:
        code = f"answer = {_MATH[task.family][1]}"
        return [AnswerAttempt(code, f"\\boxed{{{answer}}}") for answer in (7, 8)]
    return [AnswerAttempt("tried = True", f"```python\n{program}\n```") for program in _PROGRAMS[task.family]]

"""If these fail, a published set of questions and answers cannot be trained on, or has answers that nobody can give."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from sandbox.grading.math_answer import is_right_answer
from sandbox.tasks.formats.answer_rows import FORMAT
from sandbox.tasks.formats.registry import TaskFormat, detect_format, load_tasks
from sandbox.tasks.formats.rows import BOX_INSTRUCTION, JsonRow
from tests.support.tasks.parquet_files import write_parquet

MATH: JsonRow = {"problem": "Half?", "solution": "So $\\boxed{\\frac{1}{2}}$.", "level": "Level 1", "type": "Algebra"}


@pytest.mark.parametrize(
    ("row", "answer", "reply"),
    [
        ({"question": "How many?", "answer": "9 * 2 = <<9*2=18>>18\n#### 18"}, "18", "18"),
        (MATH, MATH["solution"], "0.5"),
        ({"problem": "Half?", "answer": "1/2", "solution": "It is."}, "1/2", "0.5"),
        ({"prompt": [{"role": "user", "content": "How many?"}], "label": "18"}, "18", "18"),
        ({"question": "How many?", "answer": 18}, "18", "18"),
        ({"question": "How many?", "answer": ["18"], "images": []}, "18", "18"),
    ],
)
def test_columns_are_known_by_their_names(tmp_path: Path, row: JsonRow, answer: str, reply: str):
    lines = tmp_path / "a.jsonl"
    lines.write_text(json.dumps(row))
    for path in (lines, write_parquet(tmp_path / "a.parquet", [row])):
        assert detect_format(path) is TaskFormat.ANSWER
        (task,) = load_tasks(path).tasks
        assert task.answer == answer
        assert task.instruction.endswith(f"?{BOX_INSTRUCTION}")
        assert is_right_answer(f"It is \\boxed{{{reply}}}.", task.answer)


def test_a_row_keeps_its_name_family_and_other_columns(tmp_path: Path):
    path = tmp_path / "a.jsonl"
    path.write_text(json.dumps(MATH | {"unique_id": "test/algebra/7"}))
    (task,) = load_tasks(path).tasks
    assert (task.id, task.family, task.metadata["row.level"]) == ("test-algebra-7", "Algebra", "Level 1")
    path.write_text(json.dumps(FORMAT.write(task)))
    (again,) = load_tasks(path).tasks
    assert (again.id, again.instruction, again.answer) == (task.id, task.instruction, task.answer)


@pytest.mark.parametrize(
    ("more", "problem"),
    [
        ({"answer": "x" * 200}, "has no answer in answer"),
        ({"answer": True}, "has no answer in answer"),
        ({"answer": ["1", "2"]}, "has no answer in answer"),
        ({"image": "a.png"}, "has image"),
        ({"choices": ["1", "2"]}, "has choices"),
        ({"question": 7}, "prompt"),
    ],
)
def test_a_row_that_no_agent_could_answer_is_named(tmp_path: Path, more: JsonRow, problem: str):
    path = tmp_path / "a.jsonl"
    path.write_text(json.dumps({"question": "How many?", "answer": "18"} | more))
    (found,) = load_tasks(path, "answer").first_problems
    assert problem in str(found)

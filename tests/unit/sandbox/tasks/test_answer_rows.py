"""If these fail, a published set of questions and answers cannot be trained on, or has answers that nobody can give."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from sandbox.grading.math_answer import is_right_answer
from sandbox.tasks.formats.answer_rows import FORMAT
from sandbox.tasks.formats.registry import TaskFormat, detect_format, load_tasks
from sandbox.tasks.formats.rows import BOX_INSTRUCTION, JsonRow, encode_row
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
        ({"option_a": "1", "B": "2"}, "has B, option_a"),
        ({"context": ["It is one."]}, "has context"),
        ({"documents": [{"text": "It is one."}], "tools": [{"name": "f"}]}, "has documents, tools"),
        ({"chat_history": [["a", "b"]]}, "has chat_history"),
        ({"starter_code": "def f(): ..."}, "has starter_code"),
        ({"figure_1": "a.png", "decoded_image": {"bytes": ""}}, "has decoded_image, figure_1"),
        ({"tolerance": 0.5}, "has tolerance"),
        ({"question": 7}, "prompt"),
        ({"question": " "}, "the prompt is empty"),
        ({"question": [{"role": "system", "content": "x"}, {"role": "user", "content": ""}]}, "the prompt is empty"),
        ({"question": []}, "the prompt is empty"),
    ],
)
def test_a_row_that_no_agent_could_answer_is_named(tmp_path: Path, more: JsonRow, problem: str):
    path = tmp_path / "a.jsonl"
    path.write_text(json.dumps({"question": "How many?", "answer": "18"} | more))
    (found,) = load_tasks(path, "answer").first_problems
    assert problem in str(found)


SYSTEM, USER = {"role": "system", "content": "Answer in hex."}, {"role": "user", "content": "What is 255?"}


@pytest.mark.parametrize(
    "row",
    [
        {"prompt": [SYSTEM, USER]},
        {"prompt": [SYSTEM | {"role": "developer"}, USER]},
        {"prompt": [USER], "system": "Answer in hex."},
        {"question": "What is 255?", "System Prompt": "Answer in hex."},
        {"question": "What is 255?", "instruction": " Answer in hex.\n", "input": "", "context": None},
        {"question": "Answer in hex.\n\nWhat is 255?", "instruction": "Answer in hex."},
    ],
)
def test_a_system_text_is_part_of_what_is_asked(tmp_path: Path, row: JsonRow):
    path = tmp_path / "a.jsonl"
    path.write_text(json.dumps(row | {"label": "ff"}))
    found = load_tasks(path)
    (task,) = found.tasks
    assert task.instruction == f"Answer in hex.\n\nWhat is 255?{BOX_INSTRUCTION}"
    assert found.remarks == ()
    path.write_text(json.dumps(encode_row(FORMAT, task)))
    assert load_tasks(path).tasks == (task,)


def test_texts_that_belong_to_a_question_come_in_one_order(tmp_path: Path):
    path = tmp_path / "a.jsonl"
    texts = {"input": "five", "table": "a|b", "passage": "It is.", "system_prompt": "Be brief."}
    path.write_text(json.dumps({"question": "What is 5?", "answer": "5"} | texts))
    (task,) = load_tasks(path).tasks
    assert task.instruction == f"Be brief.\n\nIt is.\n\na|b\n\nWhat is 5?\n\nfive{BOX_INSTRUCTION}"


@pytest.mark.parametrize(
    ("messages", "roles"),
    [
        ([USER, {"role": "assistant", "content": "ff"}, USER], "user, assistant, user"),
        ([USER, {"role": "assistant", "content": "It is"}], "user, assistant"),
        ([USER, {"role": "tool", "content": "ff"}], "user, tool"),
        ([USER, USER], "user, user"),
        ([USER, SYSTEM], "user, system"),
        ([SYSTEM], "system"),
    ],
)
def test_a_chat_with_earlier_turns_is_refused(tmp_path: Path, messages: list[JsonRow], roles: str):
    path = tmp_path / "a.jsonl"
    for row in ({"prompt": messages, "label": "ff"}, {"prompt": messages, "reward_model": {"ground_truth": "ff"}}):
        path.write_text(json.dumps(row))
        assert f"the prompt's messages are of {roles}, not of a user" in str(load_tasks(path).first_problems)


def test_a_column_whose_meaning_nobody_knows_is_remarked_on_and_a_usual_one_is_not(tmp_path: Path):
    usual = ["uuid", "problem_type", "data_source", "Split", "pass_rate", "solution", "gold_answer", "extra_info"]
    told: JsonRow = {"final_answer": "18", "problem": "How many?", "images": [], "context": ""}
    asked: JsonRow = {"question": "How many?", "answer": "18", "hint": "Count.", "unit": "kg"}
    row = asked | told | dict.fromkeys(usual, "x")
    path = tmp_path / "a.jsonl"
    path.write_text(json.dumps(row))
    found = load_tasks(path)
    assert [each.what.rpartition(": ")[2] for each in found.remarks] == ["hint", "unit"]


def test_a_message_names_its_keys_that_no_agent_is_told_of(tmp_path: Path):
    path = tmp_path / "a.jsonl"
    path.write_text(json.dumps({"prompt": [USER | {"name": "bob", "tool_calls": None}], "label": "ff"}))
    (remark,) = load_tasks(path).remarks
    assert remark.what.endswith(": name")

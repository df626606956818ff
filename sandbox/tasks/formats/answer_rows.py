"""Questions with an answer, by the names of the columns that published sets give them.

``question`` (or ``problem``, or ``prompt``: a text, or the messages of a chat) and ``answer`` (or ``final_answer``,
``expected_answer``, ``ground_truth``, ``label``, ``solution``).  Of such a text the answer is what follows ``####``, as
in GSM8K, or else all of it.  The agent's last reply boxes it, and :mod:`sandbox.grading.math_answer` compares it; of an
answer with a ``\\boxed{}``, as in MATH's solutions, what that holds.  Other columns are judged by
:mod:`sandbox.tasks.formats.question_columns`.
"""

from __future__ import annotations

import hashlib

from pydantic import BaseModel, ConfigDict

from sandbox.tasks.field_encoding import from_metadata, to_metadata
from sandbox.tasks.formats.folders import as_task_id
from sandbox.tasks.formats.question_columns import add_question_parts
from sandbox.tasks.formats.rows import (
    BOX_INSTRUCTION,
    EXTRA_FIELDS_KEY,
    JsonRow,
    Prompt,
    RowFormat,
    ask_for_box,
    read_prompt,
)
from sandbox.tasks.problems import TaskProblems
from sandbox.tasks.task import Task

_QUESTIONS = ("question", "problem", "prompt")
_ANSWERS = ("answer", "final_answer", "expected_answer", "ground_truth", "label", "solution")
_NAMES = ("id", "unique_id", "problem_id", "question_id")
_FAMILIES = ("subject", "type", "category", "data_source", "source")
_ROW = "row."
_MOST_CHARS = 100
"""Maximum characters of an answer that a reply could box."""


class _Question(BaseModel):
    model_config = ConfigDict(strict=True)
    prompt: Prompt


def is_answer_row(row: JsonRow) -> bool:
    """Return whether a row has a column of questions and one of answers."""
    return not (row.keys().isdisjoint(_QUESTIONS) or row.keys().isdisjoint(_ANSWERS))


def _first(row: JsonRow, names: tuple[str, ...]) -> str:
    """Return the first of the columns in which the row has something; empty for none."""
    return next((name for name in names if row.get(name) not in (None, "")), "")


def _read(row: JsonRow, problems: TaskProblems) -> Task:
    question, answer = _first(row, _QUESTIONS), _first(row, _ANSWERS)
    if not question:
        problems.add("the row has no question", f"it is in {', '.join(_QUESTIONS)}")
        return Task("unreadable", "unreadable")
    given = problems.validate("row", {"prompt": row[question]}, _Question)
    if given is None:
        return Task("unreadable", "unreadable")
    unread = {key: value for key, value in row.items() if key not in {question, answer, EXTRA_FIELDS_KEY}}
    prompt, told = add_question_parts(read_prompt(given.prompt, problems), unread, problems)
    wanted = _find_answer(row.get(answer))
    if not (wanted and (len(wanted) <= _MOST_CHARS or "\\boxed" in wanted)) and not row.get(EXTRA_FIELDS_KEY):
        why = f"it is a number, or a text of at most {_MOST_CHARS} characters, that a reply can box"
        problems.add(f"the row has no answer in {answer or ', '.join(_ANSWERS)}", why)
    name = _first(row, _NAMES)
    family = row.get(_first(row, _FAMILIES))
    rest = {key: value for key, value in row.items() if key not in {question, *told, EXTRA_FIELDS_KEY}}
    return Task(
        id=_id(str(row[name]) if name else "", prompt),
        instruction=ask_for_box(prompt) if wanted else prompt,
        family=" ".join(family.split()) if isinstance(family, str) else "",
        answer=wanted,
        metadata=to_metadata(rest, _ROW),
    )


def _find_answer(value: object) -> str:
    """Return the answer that a column's value gives; empty for none."""
    if isinstance(value, list) and len(value) == 1:  # pyright: ignore[reportUnknownArgumentType]  only its length
        value = value[0]  # pyright: ignore[reportUnknownVariableType]  its kind is asked next
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        return ""
    return str(value).rpartition("####")[2].strip()


def _id(name: str, prompt: str) -> str:
    own = as_task_id(name)
    if own and (own == name or own.strip(".-")):
        return own
    return f"question-{hashlib.sha256(prompt.encode()).hexdigest()[:12]}"


def _write(task: Task) -> JsonRow:
    rest = {key: value for key, value in from_metadata(task.metadata, _ROW).items() if key != EXTRA_FIELDS_KEY}
    columns = {*_QUESTIONS, *_ANSWERS, *_NAMES}
    row: JsonRow = {key: value for key, value in rest.items() if key not in columns}
    return {"id": task.id, "question": task.instruction.removesuffix(BOX_INSTRUCTION), "answer": task.answer, **row}


FORMAT = RowFormat(_read, _write)

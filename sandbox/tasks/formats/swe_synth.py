"""SWE-SYNTH samples, ``.json`` array or ``.jsonl``: a model's attempt at a synthetic bug, and the bug's description.

``{"task_id", "score", "model", "latency_ms", "extra": {"problem_statement", "swe_instance_id", "bug_types",
"fix_patch", "all_passed", "all_result", "conversation", "model_calls"}}``. A sample has neither image nor tests, so
its task has none: it can be read, converted and trained on offline, and graded once ``longshore`` in the row adds them.
The patch of a sample that passed every test is the oracle.  Several samples of one bug are one task, the first.
"""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field

from sandbox.tasks.field_encoding import from_metadata, to_metadata
from sandbox.tasks.formats.rows import EXTRA_FIELDS_KEY, JsonRow, RowFormat
from sandbox.tasks.problems import TaskProblems
from sandbox.tasks.task import Task

_PATCH = "fix.patch"
_APPLY = f"git apply /solution/{_PATCH}\n"
_SAMPLE, _EXTRA = "sample.", "sample.extra."
_KNOWN = {"score", "model", "latency_ms"}
_KNOWN_EXTRA = {"swe_instance_id", "all_result", "conversation", "model_calls"}


class _ExtraPart(BaseModel):
    model_config = ConfigDict(extra="allow")
    problem_statement: str
    fix_patch: str = ""
    all_passed: bool = False
    bug_types: list[str] = Field(default_factory=list[str])


class _Sample(BaseModel):
    model_config = ConfigDict(extra="allow")
    task_id: int | str
    extra: _ExtraPart


def _read(row: JsonRow, problems: TaskProblems) -> Task:
    sample = problems.validate("row", {key: value for key, value in row.items() if key != EXTRA_FIELDS_KEY}, _Sample)
    if sample is None:
        return Task("unreadable", "unreadable")
    extra = sample.extra
    unknown = [f"extra.{key}" for key in (extra.model_extra or {}).keys() - _KNOWN_EXTRA]
    if unknown := sorted([*((sample.model_extra or {}).keys() - _KNOWN), *unknown]):
        problems.remark(f"the sample has keys that are not used: {', '.join(unknown)}")
    solved = extra.all_passed and bool(extra.fix_patch)
    unused = {} if solved else {"fix_patch": extra.fix_patch, "all_passed": extra.all_passed}
    given: dict[str, object] = {key: value for key, value in unused.items() if key in extra.model_fields_set}
    if "bug_types" in extra.model_fields_set:
        given["bug_types"] = extra.bug_types
    return Task(
        id=f"swe-synth-{sample.task_id}" if isinstance(sample.task_id, int) else sample.task_id,
        instruction=extra.problem_statement.strip(),
        family=extra.bug_types[0] if extra.bug_types else "",
        solution=_APPLY if solved else "",
        solution_files={_PATCH: extra.fix_patch.encode()} if solved else {},
        metadata=to_metadata(sample.model_extra or {}, _SAMPLE)
        | to_metadata((extra.model_extra or {}) | given, _EXTRA),
    )


def _write(task: Task) -> JsonRow:
    number = task.id.removeprefix("swe-synth-")
    is_number = task.id.startswith("swe-synth-") and number.isdecimal() and str(int(number)) == number
    extra = from_metadata(task.metadata, _EXTRA)
    others = {key: value for key, value in task.metadata.items() if not key.startswith(_EXTRA)}
    if task.solution == _APPLY and set(task.solution_files) == {_PATCH}:
        extra |= {"fix_patch": task.solution_files[_PATCH].decode(errors="replace"), "all_passed": True}
    extra["problem_statement"] = task.instruction
    return from_metadata(others, _SAMPLE) | {"task_id": int(number) if is_number else task.id, "extra": _typed(extra)}


def _typed(extra: dict[str, object]) -> dict[str, object]:
    """Drop the keys whose value is not of the format's type; they go to ``longshore``."""
    kinds: dict[str, type] = {"bug_types": list, "all_passed": bool, "fix_patch": str}
    return {key: value for key, value in extra.items() if isinstance(value, kinds.get(key, object))}


FORMAT = RowFormat(_read, _write, allows_repeats=True)

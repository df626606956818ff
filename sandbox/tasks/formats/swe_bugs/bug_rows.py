"""SWE-SYNTH's bugs as rows, ``.json`` array or ``.jsonl``: what its environment keeps of each bug, an object a task.

``{"source": {"swe_instance_id", "repo", "base_commit", "dataset", "docker_image", "test_command", "fail_to_pass",
"pass_to_pass"}, "original": {"gold_patch"}, "bug": {"patch", "problem_statement", "bug_types", "target_tests"},
"source_task_id"}``, and beside them the bug's number, ``task_id``, which its environment has in the object's name.

The repository is that of the image at the base commit, with the original patch and then the bug applied.  A row whose
base commit is git's empty tree needs no image: its original patch is the repository.  All of ``fail_to_pass`` and
``pass_to_pass`` must pass; the bug's patch reversed is the oracle.  Bugs of SWE-bench Pro name neither image nor tests,
which are in that data set: they cannot be used.
"""

from __future__ import annotations

from typing import Annotated, NamedTuple

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from sandbox.tasks.field_encoding import from_metadata, to_metadata
from sandbox.tasks.formats.folders import as_task_id
from sandbox.tasks.formats.rows import EXTRA_FIELDS_KEY, JsonRow, RowFormat
from sandbox.tasks.formats.swe_bugs import made_repository, repository_image
from sandbox.tasks.problems import TaskProblems
from sandbox.tasks.task import Task
from sandbox.tasks.unified_diff import PatchError

_ROW = "bug."
"""Begins the metadata in which a task keeps its row."""
_PREFIX = "swe-synth-"
_PULL_REQUEST = "github-pr"
_TEST_COMMAND = "pytest -v --tb=no"
_Text = Annotated[str, Field(min_length=1)]


def _check_words(text: str) -> str:
    """Return a text that is not blank.  Raises ValueError."""
    if not text.strip():
        raise ValueError(f"must not be blank, as {text!r}")
    return text


_Words = Annotated[str, AfterValidator(_check_words)]
_Number = Annotated[int, Field(strict=True, ge=0)]


class _Part(BaseModel):
    model_config = ConfigDict(extra="allow")


class _Source(_Part):
    swe_instance_id: _Text
    repo: str = ""
    base_commit: str = ""
    dataset: str = ""
    docker_image: str = ""
    test_command: _Words = _TEST_COMMAND
    fail_to_pass: list[str] = Field(default_factory=list[str])
    pass_to_pass: list[str] = Field(default_factory=list[str])
    selected_test_files_to_run: str | list[str] = ""
    """Chooses the files for which a bug is made; a task runs all tests."""

    @property
    def tests(self) -> tuple[str, ...]:
        """The tests that have to pass, each once."""
        return tuple(dict.fromkeys((*self.fail_to_pass, *self.pass_to_pass)))


class _Original(_Part):
    gold_patch: str


class _Bug(_Part):
    patch: str
    problem_statement: _Text
    bug_types: list[str] = Field(default_factory=list[str])
    target_tests: list[str] = Field(default_factory=list[str])
    """The tests that the bug breaks."""


class _BugRow(_Part):
    source: _Source
    original: _Original
    bug: _Bug
    task_id: _Number | str | None = None
    source_task_id: _Number | None = None

    @property
    def name(self) -> str:
        given = self.source_task_id if self.task_id is None else self.task_id
        if isinstance(given, int):
            return f"{_PREFIX}{given}"
        return given or as_task_id(self.source.swe_instance_id)

    @property
    def made(self) -> bool:
        """True if the row holds its repository."""
        return self.source.base_commit == made_repository.EMPTY_TREE

    def unknown_fields(self) -> list[str]:
        parts: dict[str, _Part] = {"": self, "source.": self.source, "original.": self.original, "bug.": self.bug}
        return [f"{prefix}{key}" for prefix, part in parts.items() for key in part.model_extra or {}]


def _read(row: JsonRow, problems: TaskProblems) -> Task:
    given = {key: value for key, value in row.items() if key != EXTRA_FIELDS_KEY}
    found = problems.validate("row", given, _BugRow)
    if found is None:
        return Task("unreadable", "unreadable")
    if unknown := found.unknown_fields():
        problems.remark(f"has fields that SWE-SYNTH's environment does not read either: {', '.join(unknown)}")
    bug = found.bug
    task = Task(
        found.name,
        bug.problem_statement.strip(),
        family=bug.bug_types[0] if bug.bug_types else "",
        expected_tests=found.source.tests,
        metadata=to_metadata(given, _ROW),
    )
    if EXTRA_FIELDS_KEY in row and not bug.patch:
        return task  # one of another format: it says itself what it needs
    return _with_repository(task, found, problems)


def _with_repository(task: Task, row: _BugRow, problems: TaskProblems) -> Task:
    """Return ``task`` with its repository and tests, or as it is, with the reason among ``problems``."""
    source, gold_patch, patch = row.source, row.original.gold_patch, row.bug.patch
    made = row.made
    if not made and source.dataset != _PULL_REQUEST:
        problems.add(
            f"source.dataset is {source.dataset!r}, not {_PULL_REQUEST!r}",
            "a bug of SWE-bench Pro has its image and tests in that data set's row: use bugs of pull requests",
        )
    elif not made and not source.docker_image:
        problems.add("source.docker_image is missing", "the image holds the repository")
    elif not source.tests:
        problems.add("source.fail_to_pass and pass_to_pass are empty", "nothing can be graded")
    elif made and source.test_command != _TEST_COMMAND:
        problems.add(
            f"source.test_command is {source.test_command!r}",
            f"the tests of a repository without an image are run as by {_TEST_COMMAND!r}: leave it out",
        )
    else:
        try:
            if made:
                return made_repository.build_task(task, gold_patch, patch, source.tests)
            return repository_image.build_task(
                task, gold_patch, patch, source.tests, image=source.docker_image, command=source.test_command
            )
        except PatchError as error:
            whole = "the patches make the repository and its bug: write them by git diff --no-renames"
            problems.add(str(error), whole if made else "without its bug the task would pass by itself")
    return task


def _write(task: Task) -> JsonRow:
    row = from_metadata(task.metadata, _ROW)
    try:
        if _BugRow.model_validate(row).name == task.id:
            return row
    except ValueError:
        pass  # the task does not come from a bug
    bug = {"patch": "", "problem_statement": task.instruction, "bug_types": [task.family] if task.family else []}
    return {
        "task_id": task.id,
        "source": {"swe_instance_id": task.id},
        "original": {"gold_patch": ""},
        "bug": bug,
        EXTRA_FIELDS_KEY: {},
    }


class BugFacts(NamedTuple):
    """The facts about a task's bug that the task itself does not have."""

    task_id: int | str
    swe_instance_id: str
    bug_types: tuple[str, ...]
    target_tests: tuple[str, ...]
    """The tests that it breaks."""
    show_patch: str
    """Shell command that prints what an agent has changed in the repository, and fails if that cannot be told."""


def find_bug(task: Task) -> BugFacts | None:
    """Return what is known of a task's bug; None for a task that is not made of one."""
    if f"{_ROW}source" not in task.metadata or not task.setup:
        return None
    row = _BugRow.model_validate(from_metadata(task.metadata, _ROW))
    number = row.name.removeprefix(_PREFIX)
    return BugFacts(
        int(number) if number.isdecimal() else row.name,
        row.source.swe_instance_id,
        tuple(row.bug.bug_types),
        tuple(row.bug.target_tests),
        made_repository.SHOW_PATCH if row.made else repository_image.SHOW_PATCH,
    )


FORMAT = RowFormat(_read, _write)

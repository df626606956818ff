"""Formats in which a task is one row of a file: JSON Lines, a JSON array, or Parquet.

A row either holds its task or points at a task folder. Fields that its format lacks are under the key ``longshore``, as
they are in a folder's ``longshore.yaml``.
"""

from __future__ import annotations

import codecs
import posixpath
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, cast

import orjson
from pydantic import BaseModel, ConfigDict

from protocol.files.parquet import read_parquet_rows
from protocol.files.regular_files import read_regular_file
from sandbox.tasks.field_encoding import apply_fields, differing_fields
from sandbox.tasks.file_tree import path_problem
from sandbox.tasks.formats import terminal_bench
from sandbox.tasks.formats.folders import FolderFormat, load_task_folder
from sandbox.tasks.formats.harbor.directory import HARBOR
from sandbox.tasks.loaded_task import LoadedTask
from sandbox.tasks.problems import TaskProblems
from sandbox.tasks.task import Task, TaskError

EXTRA_FIELDS_KEY = "longshore"
TASK_FOLDERS = "tasks"
"""Folder, next to the file of rows, of the folders that rows point at."""
BOX_INSTRUCTION = "\n\nEnd your last reply with the final answer alone in \\boxed{}."
"""End of the instruction if an answer is required but the prompt does not mention a box."""

_TEXT_TABLES = {".csv", ".tsv"}
_COMPRESSED = {
    b"\x1f\x8b": "gunzip",
    b"BZh": "bunzip2",
    b"\xfd7zXZ": "unxz",
    b"\x28\xb5\x2f\xfd": "unzstd",
    b"PK\x03\x04": "unzip",
}
"""The program that unpacks a file with such a beginning."""
_SYSTEM_ROLES = {"system", "developer"}
_SHOWN = 100
"""Maximum characters of a path that cannot be one that are shown."""

JsonRow = dict[str, object]


@dataclass(frozen=True, slots=True)
class RowFormat:
    """Rows that hold their tasks."""

    read: Callable[[JsonRow, TaskProblems], Task]
    write: Callable[[Task], JsonRow]
    allows_repeats: bool = False
    """Several rows may describe one task; the first one counts."""


@dataclass(frozen=True, slots=True)
class PointerFormat:
    """Rows that point at task folders."""

    read: Callable[[JsonRow, Path, TaskProblems], LoadedTask]
    """Creates a task from a row and the folder that its paths are relative to."""
    write: Callable[[Task], JsonRow]
    folders: FolderFormat
    """Format of the folders that rows point at."""


def read_rows(path: Path) -> Iterator[tuple[Path, JsonRow | TaskError]]:
    """Yield each row with its location, ``file:line``; an error for a line that is not a JSON object.

    Raises TaskError when the file cannot be read.
    """
    if path.suffix == ".parquet":
        try:
            yield from ((Path(f"{path}:{number}"), row) for number, row in enumerate(read_parquet_rows(path), 1))
        except ValueError as error:
            raise TaskError(path, "is not readable Parquet", str(error)) from error
        return
    data = _read_text(path)
    if data.lstrip()[:1] == b"[":
        try:
            values = cast("list[object]", orjson.loads(data))
        except orjson.JSONDecodeError as error:
            raise TaskError(path, "is not readable JSON", str(error)) from error
        for number, value in enumerate(values, 1):
            yield _row(path, number, value)
        return
    for number, line in enumerate(data.split(b"\n"), 1):
        if not line.strip():
            continue
        try:
            value: object = orjson.loads(line)
        except orjson.JSONDecodeError as error:
            location = Path(f"{path}:{number}")
            yield location, TaskError(location, "is not readable JSON", str(error))
            continue
        yield _row(path, number, value)


def _read_text(path: Path) -> bytes:
    """Return the content of a file of rows in JSON.  Raises TaskError for one of another kind."""
    if path.suffix.lower() in _TEXT_TABLES:
        raise TaskError(path, "is a table of text", "convert it: rows are JSON lines, a JSON array or Parquet")
    try:
        data = read_regular_file(path).removeprefix(codecs.BOM_UTF8)
    except OSError as error:
        raise TaskError(path, "is not readable", str(error)) from error
    for start, program in _COMPRESSED.items():
        if data.startswith(start):
            raise TaskError(path, "is compressed", f"unpack it first: {program} {path}")
    return data


def _row(path: Path, number: int, value: object) -> tuple[Path, JsonRow | TaskError]:
    location = Path(f"{path}:{number}")
    if not isinstance(value, dict):
        return location, TaskError(location, "is not a JSON object", "a row must be one")
    return location, cast("JsonRow", value)


def load_rows(
    form: RowFormat | PointerFormat, path: Path, root: Path | None = None
) -> Iterator[tuple[Path, LoadedTask]]:
    """Load the tasks of the file ``path``, with their locations; ``root``: base of its paths (default: its folder)."""
    known: set[tuple[str, str]] = set()
    for location, row in read_rows(path):
        if isinstance(row, TaskError):
            yield location, LoadedTask(None, (row,))
            continue
        loaded = _load_row(form, row, root or path.parent, TaskProblems(location))
        if loaded.task and isinstance(form, RowFormat) and form.allows_repeats:
            key = loaded.task.id, loaded.task.instruction
            if key in known:
                continue
            known.add(key)
        yield location, loaded


def _load_row(form: RowFormat | PointerFormat, row: JsonRow, root: Path, problems: TaskProblems) -> LoadedTask:
    with problems.collecting_errors():
        if isinstance(form, PointerFormat):
            return form.read(row, root, problems)
        task = read_row(form, row, problems)
        return problems.loaded(task)
    return problems.loaded(None)


def read_row(form: RowFormat, row: JsonRow, problems: TaskProblems) -> Task:
    task = form.read(row, problems)
    if EXTRA_FIELDS_KEY in row:
        task = apply_fields(task, row[EXTRA_FIELDS_KEY], problems, EXTRA_FIELDS_KEY)
    problems.check_rules(task)
    return task


def encode_row(form: RowFormat, task: Task) -> JsonRow:
    """Return the row that is read back as ``task``.  Raises TaskError when there is none."""
    location = Path(task.id)
    checked = TaskProblems(location)
    checked.check_rules(task)
    row = form.write(task)
    rest = differing_fields(task, form.read(row, TaskProblems(location)))
    if rest:
        row[EXTRA_FIELDS_KEY] = rest
    read_back = read_row(form, row, checked)
    if checked.found:
        raise checked.found[0]
    if read_back != task:
        differ = ["id"] if read_back.id != task.id else list(differing_fields(task, read_back))
        what = f"would not be read back equal: {', '.join(differ)}"
        raise TaskError(location, what, "this format cannot hold it: convert to another")
    return row


def load_pointed_task(root: Path, where: object, problems: TaskProblems) -> LoadedTask:
    """Load the task in the folder ``where`` below ``root``, in any folder format."""
    inside = posixpath.normpath(where) if isinstance(where, str) else ""
    if path_problem(inside):
        problems.add(f"{where!r} is not a path below {root}", "a row points at a folder of its data set")
        return problems.loaded(None)
    folder = root / inside
    try:
        is_folder = folder.is_dir()
    except OSError as error:
        problems.add(f"{inside[:_SHOWN]!r} is no folder", f"the row points at it: {error.strerror}")
        return problems.loaded(None)
    if not is_folder:
        problems.add(f"{folder} is missing", "the row points at it: set --root, or put the task there")
        return problems.loaded(None)
    return load_any_task_folder(folder)


def load_any_task_folder(folder: Path) -> LoadedTask:
    """Load the task in ``folder``, in any folder format. Never raises."""
    form = HARBOR if (folder / HARBOR.marker).exists() else terminal_bench.FORMAT
    return load_task_folder(form, folder)


class RowPart(BaseModel):
    """A row that points at a folder, or an object in one."""

    model_config = ConfigDict(extra="allow", coerce_numbers_to_str=True)

    def remark_unused_keys(self, where: str, problems: TaskProblems) -> None:
        """Remark on keys that mean nothing here; everything else about the task is in its folder."""
        if self.model_extra:
            problems.remark(f"{where} has keys that are not used: {', '.join(sorted(self.model_extra))}")


class _TextPart(BaseModel):
    type: Literal["text"]
    text: str


class PromptMessage(BaseModel):
    model_config = ConfigDict(extra="allow")
    role: str
    content: str | list[_TextPart]

    @property
    def text(self) -> str:
        return self.content if isinstance(self.content, str) else "".join(part.text for part in self.content)


Prompt = str | list[PromptMessage]
"""A prompt as a text, or as the messages of a chat."""


def read_prompt(prompt: Prompt, problems: TaskProblems) -> str:
    """Return what an agent is asked: a text as it is, or of a chat the system's messages and then the user's one.

    A chat with more is a problem: an agent begins with one message and turns of its own.  Raises TaskError where
    nothing is asked.
    """
    messages = [PromptMessage(role="user", content=prompt)] if isinstance(prompt, str) else prompt
    roles = [each.role for each in messages]
    if not messages or not messages[-1].text.strip():
        raise TaskError(problems.location, "the prompt is empty", "the agent would get no instruction")
    if roles[-1] != "user" or set(roles[:-1]) - _SYSTEM_ROLES:
        why = "an agent is told one text, before turns of its own: write all that it is to know into one user message"
        problems.add(f"the prompt's messages are of {', '.join(roles)}, not of a user after a system", why)
    for key in sorted({key for each in messages for key, value in (each.model_extra or {}).items() if value}):
        problems.remark(f"the prompt has messages with a key that no agent is told of: {key}")
    return "\n\n".join(each.text for each in messages if each.text.strip())


def ask_for_box(prompt: str) -> str:
    """Return a prompt that asks for the answer in a box."""
    return prompt if "\\boxed" in prompt else prompt + BOX_INSTRUCTION


def user_prompt(text: str) -> list[JsonRow]:
    return [{"role": "user", "content": text}]

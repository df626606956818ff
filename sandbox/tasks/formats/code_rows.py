"""Code and math tasks in the rows of verl and GRPO-TCR: a prompt with ground-truth tests, or with the answer itself.

``{"data_source", "prompt": [messages], "ability", "reward_model": {"ground_truth", "style"}, "agent_name",
"extra_info"}``.  The ground truth, or its JSON text, is ``{"inputs": [...], "outputs": [...]}`` for a program that
reads standard input and prints, the same with ``"fn_name"`` for a function, or asserts: a list of statements, a text,
or Code-R1's ``{"functional": text}``.  Functions that the asserts only define are called: ``test…()``, and
``check(candidate)`` with the function that ``extra_info.entry_point`` names, or the method: LeetCodeDataset has
``Solution().twoSum``.  The program is the file ``/app/solution.py``, or the block of Python with which the
last reply ends; :mod:`sandbox.tasks.code_runner.harness` tests it.

Any other ground truth, a number or a text, in a row that is not about code, is an answer: the agent's last reply boxes
it, and :mod:`sandbox.grading.math_answer` compares it (Open-AgentRL, recipe/demystify/reward.py, also distinguishes
them by ``data_source``).
"""

from __future__ import annotations

import ast
import hashlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import orjson

from sandbox.tasks.code_runner.candidate_server import CANDIDATE_MODULE
from sandbox.tasks.code_runner.shared_state import find_shared_state
from sandbox.tasks.code_runner.tests_parser import (
    candidate_names,
    module_names,
    parse_test_code,
    uncalled_tests,
    used_names,
)
from sandbox.tasks.field_encoding import from_metadata, to_metadata
from sandbox.tasks.formats.folders import as_task_id
from sandbox.tasks.formats.question_columns import refuse_media
from sandbox.tasks.formats.rows import (
    BOX_INSTRUCTION,
    EXTRA_FIELDS_KEY,
    JsonRow,
    Prompt,
    RowFormat,
    RowPart,
    ask_for_box,
    read_prompt,
    user_prompt,
)
from sandbox.tasks.problems import TaskProblems
from sandbox.tasks.task import BASE_IMAGE, Task

CANDIDATE_PROGRAM = "/app/solution.py"
PROGRAM_INSTRUCTION = (
    f"\n\nWrite your Python program to the file {CANDIDATE_PROGRAM}, or end your last reply with it between ```python "
    "and ```."
)
"""End of an instruction: the places in which the answer is expected."""
_START = (
    "import sys, pathlib; sys.path.insert(0, '/tests'); from sandbox.tasks.code_runner.harness import main;"
    f" main(pathlib.Path('/tests'), pathlib.Path('{CANDIDATE_PROGRAM}'))"
)
_RUN = f'#!/bin/sh\nexec python3 -I -B -c "{_START}"\n'
_PACKAGES = ("sandbox", "sandbox/tasks", "sandbox/tasks/code_runner")
_RUNNER = Path(__file__).parents[1] / "code_runner"
_MODULES = (
    *("harness", "instrumentation", "object_inference", "tests_parser", "proxies", "value_codec"),
    *("candidate_program", "candidate_client", "candidate_channel", "candidate_errors", "candidate_server"),
)
HARNESS = {f"{package}/__init__.py": b"" for package in _PACKAGES} | {
    f"{_PACKAGES[-1]}/{name}.py": (_RUNNER / f"{name}.py").read_bytes() for name in _MODULES
}
"""Files of a code task's tests that are longshore's own: they keep the answer in a process of its own."""
CASES = "cases.txt"
_ROW = "row."
_TRUTH = "reward_model.ground_truth"
_TESTS = (
    "inputs and outputs, those of an fn_name lists of arguments; or asserts that run, at top level or in test…() "
    "without parameters or decorators; or, if neither data_source nor ability mentions code, an answer: otherwise "
    "nothing can be graded"
)

_CROSSING = (sys.stdlib_module_names - {"asyncio", "array", "ctypes", "io", "pathlib"}) | {CANDIDATE_MODULE, "pytest"}
"""Modules whose use in tests works across two processes."""

BASE_IMAGE_MODULES = frozenset((
    "abc", "argparse", "array", "ast", "atexit", "base64", "binascii", "bisect", "builtins", "calendar", "cmath",
    "codecs", "collections", "compileall", "configparser", "contextlib", "copy", "copyreg", "csv", "datetime", "dis",
    "email", "encodings", "enum", "errno", "faulthandler", "fcntl", "filecmp", "fnmatch", "functools", "gc",
    "genericpath", "getopt", "glob", "grp", "hashlib", "heapq", "imp", "importlib", "inspect", "io", "ipaddress",
    "itertools", "keyword", "linecache", "locale", "logging", "marshal", "math", "ntpath", "opcode", "operator",
    "optparse", "os", "pathlib", "pickle", "pkgutil", "platform", "posix", "posixpath", "pwd", "py_compile", "pyexpat",
    "quopri", "random", "re", "reprlib", "runpy", "select", "selectors", "signal", "site", "socket", "spwd",
    "sre_compile", "sre_constants", "sre_parse", "ssl", "stat", "string", "stringprep", "struct", "subprocess", "sys",
    "sysconfig", "syslog", "tempfile", "textwrap", "threading", "time", "token", "tokenize", "traceback", "tracemalloc",
    "types", "typing", "unicodedata", "urllib", "uu", "warnings", "weakref", "zipimport", "zlib",
))  # fmt: skip
"""Public modules of the base image's Python, which is Debian's python3-minimal."""

_OF_VERL = ("tools_kwargs", "interaction_kwargs")
"""Settings of verl's own tools, and of its simulated users."""

CodeCase = tuple[str, object, object]
"""A case of :mod:`~sandbox.tasks.code_runner.harness`: kind, input, expected result."""


class _RewardModel(RowPart):
    ground_truth: Any
    style: str | None = None


class _Row(RowPart):
    prompt: Prompt
    reward_model: _RewardModel
    extra_info: dict[str, Any] | None = None
    data_source: str = ""
    ability: str = ""
    agent_name: object = None
    """verl's agent; here it is the recipe's."""


def _read(row: JsonRow, problems: TaskProblems) -> Task:
    given = problems.validate("row", {key: value for key, value in row.items() if key != EXTRA_FIELDS_KEY}, _Row)
    if given is None:
        return Task("unreadable", "unreadable")
    given.remark_unused_keys("the row", problems)
    given.reward_model.remark_unused_keys("reward_model", problems)
    _check_support(given, problems)
    prompt = read_prompt(given.prompt, problems)
    truth: object = given.reward_model.ground_truth
    cases = parse_cases(truth, str((given.extra_info or {}).get("entry_point", "")))
    answer = "" if cases else _answer(given, truth)
    if not cases and not answer and not row.get(EXTRA_FIELDS_KEY):
        problems.add(f"{_TRUTH} holds no tests", _TESTS)
    rest = {key: value for key, value in row.items() if key not in {"prompt", EXTRA_FIELDS_KEY}}
    if row["prompt"] != user_prompt(prompt):
        rest["prompt"] = row["prompt"]
    return Task(
        id=_id(given, prompt),
        instruction=_instruction(prompt, answer),
        family=" ".join(given.data_source.split()) or given.ability,
        tests=HARNESS | {CASES: repr(cases).encode()} if cases else {},
        run_tests=_RUN if cases else "",
        expected_tests=tuple(f"case_{number}" for number in range(len(cases))),
        answer=answer,
        reply_program=CANDIDATE_PROGRAM if cases else "",
        metadata=to_metadata(rest, _ROW),
        test_timeout_s=60.0 + 10.0 * len(cases),
    )


def _check_support(given: _Row, problems: TaskProblems) -> None:
    """Record what a row of verl asks for and longshore does not do."""
    extra, style = given.extra_info or {}, given.reward_model.style or "rule"
    refuse_media(given.model_extra or {}, problems)
    if not style.startswith("rule"):
        why = "no model judges a row: write 'rule' if it is right to compare with the ground truth"
        problems.add(f"reward_model.style is {style!r}", why)
    if unused := sorted(name for name in _OF_VERL if extra.get(name)):
        problems.remark(f"its extra_info has keys that are not used: {', '.join(unused)}")


def _answer(given: _Row, truth: object) -> str:
    """Return the answer if the ground truth has no tests; empty for none."""
    if "code" in f"{given.data_source} {given.ability}".lower() or isinstance(truth, bool):
        return ""
    return str(truth).strip() if isinstance(truth, str | int | float) else ""


def _instruction(prompt: str, answer: str) -> str:
    return ask_for_box(prompt) if answer else prompt + PROGRAM_INSTRUCTION


def _id(given: _Row, prompt: str) -> str:
    """Return the row's own name if it has one: longshore's is in ``extra_info``, others have an index in their
    source."""
    extra = given.extra_info or {}
    if (name := extra.get("task_id")) is not None:
        return as_task_id(str(name))
    source = as_task_id(given.data_source).strip("-.") or "code"
    if extra.get("index") is not None:
        return f"{source}-{extra['index']}"
    return f"{source}-{hashlib.sha256(prompt.encode()).hexdigest()[:12]}"


def parse_cases(truth: object, entry: str = "") -> list[CodeCase]:
    """Return the tests in a ground truth; none if it holds none, or asserts that are never reached. Pure.

    ``entry``: name of the function under test, if it has one.
    """
    if isinstance(truth, str):
        try:
            truth = orjson.loads(truth)
        except orjson.JSONDecodeError:
            return _assert_cases([truth], entry)
    if isinstance(truth, list):
        return _assert_cases(cast("list[object]", truth), entry)
    if not isinstance(truth, dict):
        return []
    tests = cast("JsonRow", truth)
    if "functional" in tests:
        return _assert_cases([tests["functional"]], entry)
    inputs, outputs, function = tests.get("inputs"), tests.get("outputs"), tests.get("fn_name")
    if not (isinstance(inputs, list) and isinstance(outputs, list)):
        return []
    pairs = list(zip(cast("list[object]", inputs), cast("list[object]", outputs), strict=False))
    are_calls = all(isinstance(given, list) for given, _ in pairs)
    if len(cast("list[object]", inputs)) != len(cast("list[object]", outputs)) or (function and not are_calls):
        return []
    if function:
        return [("call", (str(function), given), wanted) for given, wanted in pairs]
    return [("prints", _joined(given), _joined(wanted)) for given, wanted in pairs]


def _joined(value: object) -> str:
    """Join a list of lines."""
    return "\n".join(map(str, cast("list[object]", value))) if isinstance(value, list) else str(value)


def _assert_cases(texts: list[object], entry: str) -> list[CodeCase]:
    """Return a case for each text; none if one of them is no test code with an assert that is reached."""
    try:
        called = [_with_call(text, entry) for text in texts if isinstance(text, str)]
        reached = [_reaches_assert(text, name) for text, name in called]
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return []
    good = len(called) == len(texts) and all(reached)
    return [("asserts", text, name or None) for text, name in called] if good else []


def _with_call(text: str, entry: str) -> tuple[str, str]:
    """Return test code and the function that its runner gives to ``check``; a method is given to it by the code."""
    if "check" not in uncalled_tests(parse_test_code(text), entry) or entry.isidentifier():
        return text, entry
    return f"{text}\n\ncheck({entry})\n", ""


def _reaches_assert(text: str, entry: str) -> bool:
    tree = parse_test_code(text)
    reached = used_names(tree) | set(uncalled_tests(tree, entry))
    return any(isinstance(each, ast.Assert) for node in tree.body if _runs(node, reached) for each in ast.walk(node))


def _runs(node: ast.stmt, reached: set[str]) -> bool:
    defines = isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef))
    return not defines or node.name in reached


def find_uncrossable_usage(task: Task) -> Iterator[str]:
    """Yield, for each case of a code task, what its tests use that does not work across two processes."""
    if task.run_tests != _RUN:
        return
    for number, tree in _test_code(task):
        if modules := sorted(_imported(tree) - _CROSSING):
            yield (
                f"its tests (case_{number}) import {', '.join(modules)}, whose objects cannot cross to the answer: "
                "compare lists, numbers and text"
            )
        for name in sorted(_made_classes(tree)):
            yield (
                f"its tests (case_{number}) create objects of their class {name}, which cannot cross to the answer: "
                f"let the prompt ask for {name} in the answer, and remove it from the tests"
            )
        for what in find_shared_state(tree, candidate_names(tree) | {"candidate"}):
            yield f"its tests (case_{number}) use {what}"


def find_missing_modules(task: Task) -> Iterator[str]:
    """Yield, for each case of a code task, the modules that its tests import and the base image's Python lacks."""
    if task.run_tests != _RUN or task.image != BASE_IMAGE or task.build:
        return
    for number, tree in _test_code(task):
        wanted = _imported(tree) | module_names(tree, candidate_names(tree))
        absent = sorted(
            name for name in wanted & _CROSSING - BASE_IMAGE_MODULES - {CANDIDATE_MODULE} if not name.startswith("_")
        )
        if absent:
            yield (
                f"its tests (case_{number}) import {', '.join(absent)}, which the Python of longshore's base image "
                "lacks, and so does the answer's: set LONGSHORE_BASE_IMAGE to an image with a complete Python"
            )


def _test_code(task: Task) -> Iterator[tuple[int, ast.Module]]:
    """Yield the number and the code of each case of asserts."""
    cases = cast("list[CodeCase]", ast.literal_eval(task.tests[CASES].decode()))
    yield from (
        (number, parse_test_code(str(code))) for number, (kind, code, _) in enumerate(cases) if kind == "asserts"
    )


def _imported(tree: ast.Module) -> set[str]:
    nodes = list(ast.walk(tree))
    names = [alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names]
    names += [node.module for node in nodes if isinstance(node, ast.ImportFrom) and node.module]
    return {name.split(".")[0] for name in names}


def _made_classes(tree: ast.Module) -> set[str]:
    """Return the classes that test code defines and calls."""
    nodes = list(ast.walk(tree))
    called = {node.func.id for node in nodes if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)}
    return {node.name for node in nodes if isinstance(node, ast.ClassDef)} & called


def _write(task: Task) -> JsonRow:
    prompt = task.instruction.removesuffix(PROGRAM_INSTRUCTION).removesuffix(BOX_INSTRUCTION)
    row = {key: value for key, value in from_metadata(task.metadata, _ROW).items() if key != EXTRA_FIELDS_KEY}
    row.setdefault("data_source", "longshore")
    row.setdefault("ability", task.family)
    row.setdefault("reward_model", {"ground_truth": "", "style": "rule"})
    row.setdefault("prompt", user_prompt(prompt))
    try:
        if _id(_Row.model_validate(row), prompt) == task.id:
            return row
    except ValueError:  # the metadata does not come from a row
        row = {"reward_model": {"ground_truth": ""}, "prompt": user_prompt(task.instruction)}
    extra = row.get("extra_info")
    named: JsonRow = (cast("JsonRow", extra) if isinstance(extra, dict) else {}) | {"task_id": task.id}
    return {**row, "extra_info": named}


FORMAT = RowFormat(_read, _write)

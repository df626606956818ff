"""Finds tests that ask a judge, and have no network by which to ask it. Pure.

A judge is a criterion of rewardkit, Harbor's verifier package, that a model or an agent decides.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import dropwhile

from sandbox.grading.isolation.pytest_call import TESTS_PATH
from sandbox.grading.shell_scripts.parser import parse_script
from sandbox.grading.shell_scripts.script import (
    ASSIGNMENT,
    COMMAND_STARTERS,
    MOST_CHARACTERS,
    ShellCommand,
    UnreadableScriptError,
    unquote,
)
from sandbox.tasks.file_tree import is_within
from sandbox.tasks.task import Task
from sandbox.tasks.task_network import NetworkMode
from sandbox.toolchain.in_container.rewardkit_judges import find_judges
from sandbox.toolchain.in_container.shim_rules import REWARDKIT, UV_TOOLS

_STARTERS = frozenset((REWARDKIT, "env", "python", "python3", *UV_TOOLS, *COMMAND_STARTERS))


def find_unreachable_judges(task: Task) -> Iterator[tuple[str, str]]:
    """Yield the problem and its reason for each file by which the tests certainly ask a judge that they cannot reach.

    One of the task's services may be a judge."""
    if task.network.verify is not NetworkMode.NONE or task.services:
        return
    why = (
        "it is a model, and the tests have no network: let the task's verifier have one, and grant it by "
        "--network task or sandbox.network"
    )
    for step in task.in_steps:
        if not find_judges(step.tests):
            continue
        where = f"step {step.step_name}: " if task.steps else ""
        for path in sorted(_asked_judges(step.run_tests, step.tests, set())):
            yield f"{where}tests/{path} asks a judge of {REWARDKIT}", why


def _asked_judges(script: str, tests: Mapping[str, bytes], read: set[str]) -> set[str]:
    """Return the files of judges that a script of the tests asks, itself or by scripts that it starts.

    ``read``: the scripts that have been read."""
    if len(script) > MOST_CHARACTERS:
        return set()
    try:
        commands = parse_script(script).commands
    except (UnreadableScriptError, RecursionError):
        return set()
    found: set[str] = set()
    for command in commands:
        if command.is_in_branch:
            continue
        found |= _judges_of_call(command, tests)
        started = {below for word in command.words if (below := _below_tests(word)) and below.endswith(".sh")}
        for path in (started & tests.keys()) - read:
            read.add(path)
            found |= _asked_judges(tests[path].decode(errors="replace"), tests, read)
    return found


def _judges_of_call(command: ShellCommand, tests: Mapping[str, bytes]) -> set[str]:
    words = [*dropwhile(ASSIGNMENT.match, map(unquote, command.words))]
    if not words or words[0] not in _STARTERS or REWARDKIT not in words:
        return set()
    last = max(number for number, word in enumerate(words) if word == REWARDKIT)
    folders = [below for word in words[last + 1 :] if (below := _below_tests(word)) is not None]
    everywhere = not folders or "" in folders
    return {path for path in find_judges(tests) if everywhere or is_within(path, folders)}


def _below_tests(word: str) -> str | None:
    """Return the path below the tests' folder that a word of a script names; None for another path."""
    found = TESTS_PATH.fullmatch(unquote(word))
    return found[1].strip("/") if found else None

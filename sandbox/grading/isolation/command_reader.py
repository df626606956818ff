"""Reads scripts from top to bottom and finds the commands that may run a program of the agent. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import dropwhile

from sandbox.grading.isolation.builtin_rules import (
    BUILTINS,
    SETTERS,
    declares_plainly,
    has_no_side_effect,
    is_expanded,
)
from sandbox.grading.isolation.pytest_call import TESTS_PATH, raises_warnings, runs_only_tests
from sandbox.grading.isolation.read_only_tools import is_read_only
from sandbox.grading.isolation.rewardkit_call import runs_only_criteria
from sandbox.grading.isolation.unprivileged_programs import START_STOP_DAEMON, starts_program
from sandbox.grading.isolation.write_targets import is_safe_target
from sandbox.grading.shell_scripts.script import (
    ALL_ARGUMENTS,
    ASSIGNMENT,
    COMMAND_STARTERS,
    DECLARING_BUILTINS,
    SHELLS,
    ExecutionCertainty,
    ShellCommand,
    ShellScript,
    shell_script_arguments,
    unquote,
)
from sandbox.tasks.sites.site_services import TOOLCHAIN_PYTHON
from sandbox.toolchain.in_container.shim_rules import (
    PLAIN_PROGRAMS,
    SHIMMED_PROGRAMS,
    UV_TOOLS,
    ShimAction,
    ShimInstaller,
    ShimNothingToDo,
    ShimPassThrough,
    ShimRun,
    ShimTests,
    ShimVenv,
    decide_shim_action,
    is_rewardkit,
)

_TESTS = "/tests/"
_SETTING = (
    r"[\"']?(?:PATH|HOME|ENV|BASH_ENV|PS4|(?:PYTHON|PYTEST_|UV_|LD_)\w*|"
    r"TEST_DIR(?!=[\"']?(?:/tests|\$\{TEST_DIR:-/tests\})/?[\"']?$))"
)
_SETTINGS, _NAMED_SETTING = re.compile(rf"{_SETTING}\+?="), re.compile(rf"{_SETTING}[\"']?$")
_INSTALLED = re.compile(r"(?:\$HOME|\$\{HOME\}|~|/root)/\.local/bin/env")
_LIMIT = re.compile(r"-\w+|--[\w-]+(?:=\w+)?|[\d.]+[smhd]?")


@dataclass(slots=True)
class _State:
    """State that a script has certainly reached at one of its commands."""

    functions: set[str] = field(default_factory=set[str])
    installed: bool = False
    has_rewardkit: bool = False
    """True if the script has installed it: the image's own may be another version."""
    made: set[str] = field(default_factory=set[str])
    """Virtual environments whose paths still mean what they meant at their creation."""
    active: bool = False
    moves: int = 0
    printed: bool = False
    """True if the previous command prints uv's installer."""
    succeeded: bool = False
    """True if the previous command has certainly run and could not fail."""


class CommandReader:
    """Judges each command by what the scripts have certainly done before it."""

    def __init__(
        self,
        main: ShellScript,
        others: Mapping[str, ShellScript],
        tests: Mapping[str, bytes],
        *,
        verifier: bool,
        plain: bool,
    ) -> None:
        """``others``: shell scripts among the tests, by their paths below the tests' folder; ``plain``: the toolchain's
        pytest can run the tests."""
        self._others, self._tests, self._verifier = others, tests, verifier
        self._shimmed = frozenset((*SHIMMED_PROGRAMS, *(PLAIN_PROGRAMS if plain else ())))
        commands = [command for script in (main, *others.values()) for command in script.commands]
        self.starts_plain_pytest = False
        """True if a command that was read starts the image's pytest, for which a plain shim stands in."""
        self._callers = {
            each.function for each in commands if each.function and unquote(each.words[0]) in ALL_ARGUMENTS
        }
        """Functions that run their arguments as a command."""
        moves = [each for each in commands if _may_move(each)]
        self._moves = -1 if any(each.function for each in moves) else len(moves)
        """Number of commands that change the working directory; -1 if a function does, because its time is unknown."""
        self._any_start = any(map(starts_program, commands))

    def risks(self, script: ShellScript) -> Iterator[str]:
        """Yield each command and redirection that is not certainly the toolchain's."""
        yield from (f"> {target}" for target in script.written_files if not is_safe_target(target))
        self._state = _State()
        for command in script.commands:
            self._state.functions |= {name for name, at in script.functions.items() if at < command.offset}
            if command.words in (("sh",), ("bash",)) and command.reads_pipe and self._state.printed:
                continue
            if not self._is_toolchains(command.words, command.function):
                yield " ".join(command.words)
            self._record(command)

    def _record(self, command: ShellCommand) -> None:
        """Record the effect of the command for those after it."""
        state = self._state
        state.moves += _may_move(command)
        certain = command.when is ExecutionCertainty.ALWAYS or (
            command.when is ExecutionCertainty.IF_PREVIOUS_SUCCEEDED and state.succeeded
        )
        found = self._shim_action(command.words)
        state.printed = isinstance(found, ShimInstaller)
        state.succeeded = certain and isinstance(found, ShimNothingToDo | ShimVenv)
        match found:
            case ShimNothingToDo() if any(is_rewardkit(unquote(word)) for word in command.words):
                state.has_rewardkit = True
            case ShimInstaller():
                state.installed = True
            case ShimVenv(path) if certain and (path.startswith("/") or state.moves == self._moves):
                state.made.add(path)
            case _ if certain and command.words[0] in ("source", ".") and len(command.words) > 1:
                path = unquote(command.words[1])
                state.active = state.active or self._is_made(path)
                if (read := TESTS_PATH.fullmatch(path)) and (other := self._others.get(read[1].strip("/"))):
                    state.functions |= other.functions.keys()
            case _:
                pass
        if self._may_start(command):
            state.made.clear()  # it may have replaced them

    def _may_start(self, command: ShellCommand) -> bool:
        """Return whether the command may start a program of the agent."""
        starters = SHELLS | ALL_ARGUMENTS | {START_STOP_DAEMON, "source", "."} | self._state.functions
        return self._any_start and any(unquote(word) in starters for word in command.words)

    def _is_toolchains(self, words: Sequence[str], within: str) -> bool:
        if any(map(_SETTINGS.match, words)):
            return False
        words = tuple(dropwhile(ASSIGNMENT.match, words))
        if not words:
            return True
        first = unquote(words[0])
        if first in self._state.functions:
            return first not in self._callers or self._is_toolchains(words[1:], "")
        if first in ALL_ARGUMENTS:
            return within in self._callers
        if first in ("set", "shift") and within in self._callers:
            return False
        if first in SETTERS and any(map(_NAMED_SETTING.match, words[1:])):
            return False
        if first in COMMAND_STARTERS:
            return self._is_toolchains(_started(words), within)
        return self._is_toolchain_program(first, words)

    def _is_toolchain_program(self, first: str, words: Sequence[str]) -> bool:
        arguments = [unquote(word) for word in words[1:]]
        if self._state.active and first in ("pytest", "py.test"):
            return runs_only_tests(words[1:], self._tests)
        if first in self._shimmed or first == TOOLCHAIN_PYTHON:
            return self._verifier and (_runs_test_program(words, self._tests) or self._shim_answers(words))
        if first in ("source", "."):
            return bool(arguments) and self._may_source(arguments[0])
        if first in SHELLS:
            return (first != "bash" or self._verifier) and _is_read(shell_script_arguments(arguments)[0])
        if first in DECLARING_BUILTINS:
            return declares_plainly(arguments)
        if first == START_STOP_DAEMON:
            return True  # find_exposures has judged it
        if first not in BUILTINS and not (self._verifier and is_read_only(first, words[1:])):
            return False
        return has_no_side_effect(first, words[1:])

    def _shim_action(self, words: Sequence[str]) -> ShimAction:
        program, *arguments = (unquote(word) for word in words)
        hidden = self._state.active and program in PLAIN_PROGRAMS  # by the environment's own
        stands_in = program in self._shimmed and program not in self._state.functions and not hidden
        return decide_shim_action(program, arguments) if stands_in else ShimPassThrough()

    def _shim_answers(self, words: Sequence[str]) -> bool:
        match self._shim_action(words):
            case ShimNothingToDo():
                return True
            case ShimInstaller(""):
                return True
            case ShimVenv(path):
                return not is_expanded(path)
            case ShimRun(["pytest", *rest]) | ShimTests("pytest", rest) as found:
                is_plain = isinstance(found, ShimTests)
                self.starts_plain_pytest |= is_plain
                given = words[-len(rest) :] if rest else ()
                return runs_only_tests(given, self._tests) and not (is_plain and raises_warnings(given))
            case ShimRun(["rewardkit", *rest]):
                return bool(rest) and runs_only_criteria(words[-len(rest) :], self._tests)
            case ShimTests("rewardkit", rest):
                return self._state.has_rewardkit and bool(rest) and runs_only_criteria(words[-len(rest) :], self._tests)
            case _:
                return False

    def _may_source(self, path: str) -> bool:
        """Return whether a script is the toolchain's own or one of the tests'."""
        return _is_read(path) or self._is_made(path) or (self._state.installed and bool(_INSTALLED.fullmatch(path)))

    def _is_made(self, path: str) -> bool:
        made, _, end = path.removeprefix("./").rpartition("/bin/")
        return end == "activate" and made in {each.removeprefix("./") for each in self._state.made}


def _may_move(command: ShellCommand) -> bool:
    return any(unquote(word) == "cd" for word in command.words)


def _started(words: Sequence[str]) -> Sequence[str]:
    """Return the command that one of COMMAND_STARTERS starts; none if it only looks a program up."""
    if words[1:2] in (("-v",), ("-V",)):
        return ()
    at = 1
    while words[0] == "timeout" and at < len(words) and _LIMIT.fullmatch(words[at]):
        at += 2 if words[at] in ("-k", "-s") else 1
    return words[at:]


def _runs_test_program(words: Sequence[str], tests: Mapping[str, bytes]) -> bool:
    """Return whether the toolchain's Python runs a file of the tests, and looks nowhere else for modules."""
    match [unquote(word) for word in words]:
        case [python, "-I", "-B", program, *_] if python == TOOLCHAIN_PYTHON:
            return program.startswith(_TESTS) and program.removeprefix(_TESTS) in tests
        case _:
            return False


def _is_read(path: str) -> bool:
    """Return whether the path is a shell script among the tests, which is read too."""
    return bool(TESTS_PATH.fullmatch(path)) and path.endswith(".sh")


def calls_plain_program(command: ShellCommand) -> bool:
    """Return whether a command names a program that the toolchain's plain shims stand in for, and so may call it."""
    looks_up = command.words[:2] in (("command", "-v"), ("command", "-V"))
    by_uv = command.words[:1] in {(tool,) for tool in UV_TOOLS}
    return not (looks_up or by_uv) and any(unquote(word) in PLAIN_PROGRAMS for word in command.words)


def sets_setting(name: str) -> bool:
    """Return whether a variable of this name changes the programs that the shell, Python, pytest or uv run."""
    return bool(_NAMED_SETTING.match(name))

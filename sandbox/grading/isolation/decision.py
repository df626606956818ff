"""Whose programs run a task's tests: the kit's or the container's.  Pure.

Read from the script: it is the kit's where each command is the shell's own, a function of the script's, a tool of the
kit's that only reads and prints (:mod:`sandbox.grading.isolation.read_only_tools`), or one that the kit stands in for
(:mod:`sandbox.toolchain.in_container.shim_rules`); pytest is told nothing but to run the tests (:mod:`sandbox.grading.isolation.pytest_call`); nothing
that the agent left can be a program (:mod:`sandbox.grading.isolation.arithmetic`); what is written goes where the agent can have
made no link (:mod:`sandbox.grading.isolation.write_targets`); and a program of the agent's is nobody's, and told nothing by accident
(:mod:`sandbox.grading.isolation.unprivileged_programs`).  In doubt it is the container's.  What the tests themselves start is their own affair:
``subprocess.run(["git", …])`` in a test asks the container's git.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from getopt import GetoptError, getopt
from itertools import chain, dropwhile, pairwise
from typing import NamedTuple

from sandbox.grading.isolation.arithmetic import find_counted_names, find_untrusted_values
from sandbox.grading.isolation.pytest_call import TESTS_PATH, runs_only_tests
from sandbox.grading.isolation.read_only_tools import is_read_only
from sandbox.grading.isolation.shell_script import (
    ALL_ARGUMENTS,
    ASSIGNMENT,
    COMMAND_STARTERS,
    DECLARING_BUILTINS,
    SHELLS,
    ExecutionCertainty,
    ShellCommand,
    ShellScript,
    UnreadableScriptError,
    parse_script,
    shell_script_arguments,
    unquote,
)
from sandbox.grading.isolation.unprivileged_programs import (
    START_STOP_DAEMON,
    IsolationDoubt,
    find_exposures,
    find_named_users,
    starts_program,
)
from sandbox.grading.isolation.write_targets import is_safe_target
from sandbox.toolchain.in_container.layout import BASH, BUSYBOX
from sandbox.toolchain.in_container.shim_rules import (
    SHIMMED_PROGRAMS,
    ShimAction,
    ShimInstaller,
    ShimNothingToDo,
    ShimPassThrough,
    ShimRun,
    ShimVenv,
    decide_shim_action,
)


class Isolation(StrEnum):
    """Whose shell, tools and Python run the tests.  Always: alone, hidden until now, own stream."""

    TOOLCHAIN = "kit"
    """Ours, static or closed, and read-only."""
    IMAGE = "image"
    """The container's own take part, which a root agent can have replaced unless the container is a clean one."""


class ScriptShell(NamedTuple):
    """How a script is run."""

    argv: tuple[str, ...]
    """Before the script's path; empty for a script that names an interpreter of the container's."""
    is_toolchain: bool


_MOST_CHARACTERS = 64 << 10
"""Of scripts that are read: more would hold up whoever waits."""
_INTERPRETER = re.compile(r"#!\s*(?:/usr)?(?:/local)?/bin/(?:env\s+(?:-S\s+)?)?(\w+)\s*(.*)")


def choose_shell(script: str, *, verifier: bool) -> ScriptShell:
    """As Terminal-Bench runs it: by bash, if it names a shell or nothing.  ``verifier``: whether this kit has its
    verifier half, and so a bash."""
    first = script.split("\n", 1)[0].strip()
    found = _INTERPRETER.fullmatch(first)
    name, options = (found[1], tuple(found[2].split())) if found else ("", ())
    if first.startswith("#!") and name not in ("bash", "sh", "dash", "ash"):
        return ScriptShell((), is_toolchain=False)
    if verifier:
        return ScriptShell((BASH, "--noprofile", "--norc", *options), is_toolchain=True)
    if name == "bash":
        return ScriptShell(("/bin/bash", "--noprofile", "--norc", *options), is_toolchain=False)
    return ScriptShell((BUSYBOX, "sh", *options), is_toolchain=True)


_BUILTINS = frozenset((
    ":", "[", "[[", "break", "cd", "continue", "echo", "exit", "false", "printf", "pwd", "read", "return", "set",
    "shift", "test", "true", "type", "ulimit", "umask", "unset", "wait",
))  # fmt: skip
_SETTERS = DECLARING_BUILTINS | {"printf", "read", "unset"}
"""Builtins that set or forget what their arguments name."""
_SETTING = (
    r"[\"']?(?:PATH|HOME|ENV|BASH_ENV|PS4|(?:PYTHON|PYTEST_|UV_|LD_)\w*|"
    r"TEST_DIR(?!=[\"']?(?:/tests|\$\{TEST_DIR:-/tests\})/?[\"']?$))"
)
_SETTINGS, _NAMED_SETTING = re.compile(rf"{_SETTING}\+?="), re.compile(rf"{_SETTING}[\"']?$")
_INSTALLED = re.compile(r"(?:\$HOME|\$\{HOME\}|~|/root)/\.local/bin/env")
_LIMIT = re.compile(r"-\w+|--[\w-]+(?:=\w+)?|[\d.]+[smhd]?")
_NAME = re.compile(r"[A-Za-z_]\w*")
_DECLARED = re.compile(r"[-+](?!\w*[in])\w+|[A-Za-z_]\w*(?:\+?=.*)?", re.DOTALL)
_READ_OPTIONS = "ersa:d:i:n:N:p:t:u:"
_PLAIN = {"unset": re.compile(r"-v|[A-Za-z_]\w*"), "wait": re.compile(r"-[nf]|%?\d+|\$!")}
"""What they may be told: a subscript would be evaluated."""


def decide_isolation(script: str, tests: Mapping[str, bytes], *, verifier: bool = True) -> Isolation:
    """Of a test script, with the shell scripts that it brings along."""
    return Isolation.TOOLCHAIN if find_doubt(script, tests, verifier=verifier) is None else Isolation.IMAGE


def shell_scripts(tests: Mapping[str, bytes]) -> dict[str, str]:
    """Those that tests bring along."""
    return _texts(tests, ".sh")


def _texts(tests: Mapping[str, bytes], *ends: str) -> dict[str, str]:
    return {path: data.decode(errors="replace") for path, data in tests.items() if path.endswith(ends)}


def find_doubt(script: str, tests: Mapping[str, bytes], *, verifier: bool = True) -> IsolationDoubt | None:
    """What of the script is not certainly the kit's, the first of it; None where all is."""
    beside = shell_scripts(tests)
    if by_name := next(find_named_users((script, *_texts(tests, ".sh", ".py").values())), None):
        return by_name
    if not choose_shell(script, verifier=verifier).is_toolchain:
        return IsolationDoubt(script.split("\n", 1)[0])
    if sum(map(len, (script, *beside.values()))) > _MOST_CHARACTERS:
        return IsolationDoubt(f"more than {_MOST_CHARACTERS} characters")
    try:
        main, others = parse_script(script), {path: parse_script(text) for path, text in beside.items()}
    except (UnreadableScriptError, RecursionError) as error:
        return IsolationDoubt(str(error))
    scripts = [main, *others.values()]
    reader = _Reader(main, others, tests, verifier=verifier)
    set_ones = filter(_NAMED_SETTING.match, find_counted_names(scripts))
    others_programs = chain(find_untrusted_values(scripts, _SETTERS), set_ones, *map(reader.doubts, scripts))
    return next(chain(find_exposures(main, others), map(IsolationDoubt, others_programs)), None)


@dataclass(slots=True)
class _State:
    """Where a script is at one of its commands."""

    functions: set[str] = field(default_factory=set[str])
    installed: bool = False
    made: set[str] = field(default_factory=set[str])
    """Environments, whose paths mean the same as when they were made."""
    active: bool = False
    moves: int = 0
    printed: bool = False
    """The command before prints uv's installer."""
    succeeded: bool = False
    """The command before has certainly run, and could not fail."""


class _Reader:
    """Reads scripts from top to bottom."""

    def __init__(
        self, main: ShellScript, others: Mapping[str, ShellScript], tests: Collection[str], *, verifier: bool
    ) -> None:
        """``others``: by their paths below the tests' folder."""
        self._others, self._tests, self._verifier = others, tests, verifier
        commands = [command for script in (main, *others.values()) for command in script.commands]
        self._callers = {
            each.function for each in commands if each.function and unquote(each.words[0]) in ALL_ARGUMENTS
        }
        """Functions that take their arguments for a command."""
        moves = [each for each in commands if _may_move(each)]
        self._moves = -1 if any(each.function for each in moves) else len(moves)
        """How many commands change the working directory; negative where nobody knows when."""
        self._any_start = any(map(starts_program, commands))

    def doubts(self, script: ShellScript) -> Iterator[str]:
        yield from (f"> {target}" for target in script.written_files if not is_safe_target(target))
        self._state = _State()
        for command in script.commands:
            self._state.functions |= {name for name, at in script.functions.items() if at < command.offset}
            if command.words in (("sh",), ("bash",)) and command.reads_pipe and self._state.printed:
                continue
            if not self._command(command.words, command.function):
                yield " ".join(command.words)
            self._pass(command)

    def _pass(self, command: ShellCommand) -> None:
        """Know what it has done for those after it."""
        state = self._state
        state.moves += _may_move(command)
        certain = command.when is ExecutionCertainty.ALWAYS or (
            command.when is ExecutionCertainty.IF_PREVIOUS_SUCCEEDED and state.succeeded
        )
        found = self._answer(command.words)
        state.printed = isinstance(found, ShimInstaller)
        state.succeeded = certain and isinstance(found, ShimNothingToDo | ShimVenv)
        match found:
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
            state.made.clear()  # it may have put its own in their place

    def _may_start(self, command: ShellCommand) -> bool:
        """An agent's program, or what of the script's does so."""
        who = SHELLS | ALL_ARGUMENTS | {START_STOP_DAEMON, "source", "."} | self._state.functions
        return self._any_start and any(unquote(word) in who for word in command.words)

    def _command(self, words: Sequence[str], within: str) -> bool:
        if any(map(_SETTINGS.match, words)):
            return False
        words = tuple(dropwhile(ASSIGNMENT.match, words))
        if not words:
            return True
        first = unquote(words[0])
        if first in self._state.functions:
            return first not in self._callers or self._command(words[1:], "")
        if first in ALL_ARGUMENTS:
            return within in self._callers
        if first in ("set", "shift") and within in self._callers:
            return False
        if first in _SETTERS and any(map(_NAMED_SETTING.match, words[1:])):
            return False
        if first in COMMAND_STARTERS:
            return self._command(_started(words), within)
        return self._program(first, words)

    def _program(self, first: str, words: Sequence[str]) -> bool:
        arguments = [unquote(word) for word in words[1:]]
        if first in SHIMMED_PROGRAMS:
            return self._verifier and self._stands_in(words)
        if first in ("source", "."):
            return bool(arguments) and self._may_source(arguments[0])
        if first in SHELLS:
            return (first != "bash" or self._verifier) and _is_read(shell_script_arguments(arguments)[0])
        if self._state.active and first in ("pytest", "py.test"):
            return runs_only_tests(words[1:], self._tests)
        if first in DECLARING_BUILTINS:
            return all(map(_DECLARED.fullmatch, arguments))
        if first == START_STOP_DAEMON:
            return True  # told() has judged it
        if first not in _BUILTINS and not (self._verifier and is_read_only(first, words[1:])):
            return False
        return _only_speaks(first, words[1:])

    def _answer(self, words: Sequence[str]) -> ShimAction:
        program, *arguments = (unquote(word) for word in words)
        stands_in = program in SHIMMED_PROGRAMS and program not in self._state.functions
        return decide_shim_action(program, arguments) if stands_in else ShimPassThrough()

    def _stands_in(self, words: Sequence[str]) -> bool:
        match self._answer(words):
            case ShimNothingToDo():
                return True
            case ShimInstaller(""):
                return True
            case ShimVenv(path):
                return not _is_expanded(path)
            case ShimRun(["pytest", *rest]):
                return bool(rest) and runs_only_tests(words[-len(rest) :], self._tests)
            case _:
                return False

    def _may_source(self, path: str) -> bool:
        """What the kit has just written, and the tests' own scripts."""
        return _is_read(path) or self._is_made(path) or (self._state.installed and bool(_INSTALLED.fullmatch(path)))

    def _is_made(self, path: str) -> bool:
        made, _, end = path.removeprefix("./").rpartition("/bin/")
        return end == "activate" and made in {each.removeprefix("./") for each in self._state.made}


def _may_move(command: ShellCommand) -> bool:
    return any(unquote(word) == "cd" for word in command.words)


def _only_speaks(program: str, arguments: Sequence[str]) -> bool:
    """Whether a builtin or a tool of the kit's sets and makes nothing that data names, and writes where it may."""
    match program:
        case "set":
            return not any(map(_is_expanded, arguments[:1]))
        case "read":
            return not any(map(_is_expanded, arguments)) and _names_plainly([*map(unquote, arguments)])
        case "unset" | "wait":
            return all(_PLAIN[program].fullmatch(unquote(each)) for each in arguments)
        case "printf":
            return _formats([*map(unquote, arguments)])
        case "test" | "[" | "[[":
            return not any(way == "-v" and not _NAME.fullmatch(name) for way, name in pairwise(arguments))
        case "mkdir":
            return not any(map(_is_expanded, arguments))
        case "tee":
            return all(each == "-a" or is_safe_target(each) for each in arguments)
        case _:
            return True


def _names_plainly(arguments: list[str]) -> bool:
    """Whether ``read`` sets variables, none by a subscript, which would be evaluated."""
    try:
        options, names = getopt(arguments, _READ_OPTIONS)
    except GetoptError:
        return False
    return all(map(_NAME.fullmatch, (*names, *(value for option, value in options if option == "-a"))))


def _formats(arguments: list[str]) -> bool:
    """Whether ``printf`` prints, or sets a variable: no option of its comes from elsewhere."""
    if arguments[:1] == ["-v"]:
        return bool(_NAME.fullmatch("".join(arguments[1:2]))) and _formats(arguments[2:])
    return not arguments or arguments[0] == "--" or not arguments[0].startswith(("-", "$", "`"))


def _is_expanded(word: str) -> bool:
    return "$" in word or "`" in word


def _started(words: Sequence[str]) -> Sequence[str]:
    """What one of :data:`STARTERS` starts; nothing where it only asks for a program's place."""
    if words[1:2] in (("-v",), ("-V",)):
        return ()
    at = 1
    while words[0] == "timeout" and at < len(words) and _LIMIT.fullmatch(words[at]):
        at += 2 if words[at] in ("-k", "-s") else 1
    return words[at:]


def _is_read(path: str) -> bool:
    """A shell script of the tests': these are read too."""
    return bool(TESTS_PATH.fullmatch(path)) and path.endswith(".sh")

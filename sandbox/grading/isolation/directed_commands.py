"""Finds commands of test scripts in which text of the agent says which file they read, or which SQL they run. Pure."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import partial
from itertools import dropwhile, pairwise

from sandbox.grading.isolation.python_tests import Exposure, ExposureKind
from sandbox.grading.shell_scripts.parser import parse_script
from sandbox.grading.shell_scripts.script import (
    ASSIGNMENT,
    MOST_CHARACTERS,
    ShellCommand,
    ShellScript,
    UnreadableScriptError,
    unquote,
)

_FROM_FILE = re.compile(
    r"(?:\$\(|`)\s*(?:<|(?:cat|tac|head|tail|cut|tr|[ef]?grep|sort|uniq|readlink|sed|awk|jq)\b)[^()`]*(?:[)`]|\Z)"
)
"""Matches the text of a file."""
_TESTS = re.compile(r"(?<![\w.])/tests\b|TEST_DIR|\$0|BASH_SOURCE")
"""Matches in what names the tests' own files."""
_AGENTS_PATH = r"[\"']?(?!/tests\b|\$\{?TEST_DIR)[/$\w.~]"
_SQL_CLIENT = re.compile(r"sqlite3|psql|mysql|mariadb|duckdb")
_READS_SQL = re.compile(rf".*?(?:\s-(?:f|-file)[ =]?|\.read\s+){_AGENTS_PATH}")
_VALUE = re.compile(r"\$(?:\{#?|\(\s*)?(\w+|[@*])")
"""Matches a variable or the output of a function."""
_INPUT_FILE = re.compile(r"\$\(\s*<([^()]*)\)")
_FILE_OF_NAMES = re.compile(rf"--files0-from={_AGENTS_PATH}")
_READ_INTO = frozenset(("read", "mapfile", "readarray"))
_MOST_PASSES = 3
"""Maximum number of variables and functions through which a text is followed."""
_READERS = re.compile(
    r"(?P<plain>cat|tac|wc|cmp|diff|[ef]?grep|\w+sum)|head|tail|sort|cut|comm|join|paste|nl|od|uniq|fold|fmt|base\w+"
)
"""Tools of the toolchain that print what is in the files that they are given, or say something of it; ``plain``: those
whose options mostly have no value."""


def find_directed_commands(script: str, others: Mapping[str, str]) -> Iterator[Exposure]:
    """Yield each such command, but none of a script that is too long or cannot be parsed; ``others``: those beside the
    test script, by path."""
    for path, text in {"the test script": script, **others}.items():
        if len(text) > MOST_CHARACTERS:
            continue
        try:
            parsed = parse_script(text)
        except (UnreadableScriptError, RecursionError):
            continue
        names = _Names(parsed)
        for command in filter(names.direct, parsed.commands):
            line = text.encode(errors="replace").count(b"\n", 0, command.offset) + 1
            yield Exposure(ExposureKind.DIRECTED, path, line, " ".join(command.words))


class _Names:
    """Variables, parameters and functions of a script that have text of the agent, or name files of the tests."""

    def __init__(self, script: ShellScript) -> None:
        self._of_tests = set[str]()
        self._agents = set[tuple[str, str]]()
        """Each with the function whose parameter it is; empty for others."""
        for _ in range(_MOST_PASSES):
            self._agents |= {("", name) for name, values in script.loops if any(map(self._is_agents, values))}
            for command in script.commands:
                self._follow(command, script.functions)

    def _follow(self, command: ShellCommand, functions: Collection[str]) -> None:
        function, (name, *given) = command.function, _program(command)
        for word in filter(ASSIGNMENT.match, command.words):
            variable, _, value = word.partition("=")
            if self._names_tests(value):
                self._of_tests.add(variable)
            elif self._is_agents(value, function):
                self._agents.add(("", variable.rstrip("+")))
        if name in _READ_INTO and self._is_agents(command.input, function):
            self._agents |= {("", each) for each in given}
        if name in functions and (found := [self._is_agents(each, function) for each in given]).count(True):
            self._agents |= {
                (name, each) for each in ("@", "*", *(str(at) for at, is_its in enumerate(found, 1) if is_its))
            }
        if function and self._is_agents(f"$({' '.join((name, *given))})", function):
            self._agents.add(("", function))

    def direct(self, command: ShellCommand) -> bool:
        """Return whether text of the agent says which files a command reads, or which SQL it runs."""
        name, *given = _program(command)
        is_agents = partial(self._is_agents, function=command.function)
        if _SQL_CLIENT.fullmatch(name):
            texts = [word for word in given if word.startswith(('"$', "$", '"`', "`"))]
            texts += [command.input] if command.has_input or command.reads_pipe or len(given) < 2 else []
            return any(map(is_agents, texts)) or bool(_READS_SQL.match(" ".join(command.words)))
        if name == "xargs" and any(map(_READERS.fullmatch, given)) and is_agents(command.input):
            return True
        inputs = (*command.words, command.input if command.has_input or name in _READ_INTO else "")
        named = [
            *_named_files(name, given),
            *(found[1].strip() for word in inputs for found in _INPUT_FILE.finditer(word)),
        ]
        return any(map(is_agents, named)) or any(map(_FILE_OF_NAMES.match, given))

    def _is_agents(self, word: str, function: str = "") -> bool:
        """Return whether a word has text of the agent; ``function``: the one whose parameters it may have."""
        names = {found[1] for found in _VALUE.finditer(word)}
        from_file = any(not self._names_tests(found[0]) for found in _FROM_FILE.finditer(word))
        return from_file or any(("", name) in self._agents or (function, name) in self._agents for name in names)

    def _names_tests(self, word: str) -> bool:
        return bool(_TESTS.search(word)) or any(found[1] in self._of_tests for found in _VALUE.finditer(word))


def _program(command: ShellCommand) -> Sequence[str]:
    """Return the words of a command from its name on; an empty one for a command that only assigns."""
    return [*dropwhile(ASSIGNMENT.match, command.words)] or [""]


def _named_files(name: str, given: Sequence[str]) -> Iterator[str]:
    """Yield the words after a command's name that name files which it prints."""
    if not (reader := _READERS.fullmatch(unquote(name))):
        return
    operands = [
        word
        for before, word in pairwise((name, *given))
        if not word.startswith("-") and (reader["plain"] or not before.startswith("-"))
    ]
    yield from operands[1:] if name.endswith("grep") else operands

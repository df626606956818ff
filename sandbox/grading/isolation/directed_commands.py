"""Finds commands of test scripts in which text of the agent says which file they read, or which SQL they run. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
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
    r"(?:\$\(|`)\s*(?:<|(?:cat|head|tail|cut|tr|grep|sort)\b)(?:(?!/tests\b|TEST_DIR)[^()`])*(?:[)`]|\Z)"
)
"""Matches the text of a file that is not the tests' own."""
_SQL_CLIENT = r"(?:sqlite3|psql|mysql|mariadb|duckdb)\b"
_AGENTS_PATH = r"[\"']?(?!/tests\b|\$\{?TEST_DIR)[/$\w.~]"
_READS_SQL = re.compile(rf"{_SQL_CLIENT}[^\n]*?(?:\s-(?:f|-file)[ =]?|\.read\s+){_AGENTS_PATH}")
_IS_GIVEN_SQL = re.compile(rf"{_SQL_CLIENT}[^\n;|&<]*<\s*{_AGENTS_PATH}".encode())
_VARIABLE = re.compile(r"\$\{?(\w+)")
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
        data, names = text.encode(errors="replace"), _directed_names(parsed)
        for command in parsed.commands:
            words = " ".join(command.words)
            runs_sql = _READS_SQL.match(words) or (command.has_input and _IS_GIVEN_SQL.match(data, command.offset))
            if runs_sql or any(_is_directed(word, names) for word in _named_files(command)):
                line = data.count(b"\n", 0, command.offset) + 1
                yield Exposure(ExposureKind.DIRECTED, path, line, words)


def _directed_names(script: ShellScript) -> set[str]:
    """Return the variables that have text of the agent."""
    found = {name for name, values in script.loops if any(map(_FROM_FILE.search, values))}
    for command in script.commands:
        for word in filter(ASSIGNMENT.match, command.words):
            name, _, value = word.partition("=")
            if _is_directed(value, found):
                found.add(name.rstrip("+"))
        if command.words[0] == "read" and command.has_input:
            found |= {*command.words[1:]}
    return found


def _named_files(command: ShellCommand) -> Iterator[str]:
    """Yield the words of a command that name files which it prints."""
    words = [*dropwhile(ASSIGNMENT.match, command.words)]
    if not words or not (reader := _READERS.fullmatch(unquote(words[0]))):
        return
    operands = [
        word
        for before, word in pairwise(words)
        if not word.startswith("-") and (reader["plain"] or not before.startswith("-"))
    ]
    yield from operands[1:] if words[0].endswith("grep") else operands


def _is_directed(word: str, names: set[str]) -> bool:
    return bool(_FROM_FILE.search(word)) or any(found[1] in names for found in _VARIABLE.finditer(word))

"""Checks that a test script's arithmetic and conditions only use values of its own. Pure.

bash evaluates the value of a variable in arithmetic, including commands in it; ``[`` interprets an unquoted expansion
as operators, ``[[`` and ``case`` as a pattern. A value that the agent left could be a program there, or the verdict.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence

from sandbox.grading.shell_scripts.script import ShellScript, unquote

_LENGTH = re.compile(r"\$\{#(?:(?!\$\{#)[^}])*+\}|\$[?#$!]")
_NAME = re.compile(r"(?<!\w)[A-Za-z_]\w*")
_ANYTHING = re.compile(r"\$\((?!\()|`|\$\{?[\d@*]")
"""Matches a command's output or an argument."""
_NUMBER = re.compile(r"[\"']?(?:\d+|\$[?#]|\$\(\(.*\)\))[\"']?", re.DOTALL)
_WORD = re.compile(r"[\"']?(?:[\w./][\w./-]*|\$[?#]|\$\(\(.*\)\))[\"']?", re.DOTALL)
"""Matches a word that is not an operator of ``[``."""
_COUNTS = re.compile(r"(?<!\w)([A-Za-z_]\w*)\s*(?:[-+*/%]?=(?!=)|\+\+|--)")
_ASSIGNS = re.compile(r"(\w+)\+?=(.*)", re.DOTALL)
_EXPANDED = re.compile(r"\$\{?(\w+)\}?")


def find_untrusted_values(scripts: Sequence[ShellScript], setters: Collection[str]) -> Iterator[str]:
    """Yield the expressions and expansions that may hold values from the agent. ``setters``: builtins that set the
    variables that their arguments name."""
    texts = {text: _LENGTH.sub("", text) for script in scripts for text in script.arithmetic}
    counters = {name for text in texts.values() for name in _COUNTS.findall(text)}
    numbers, words = (counters | _always(each, scripts, setters) for each in (_NUMBER, _WORD))
    yield from (text for text, counted in texts.items() if not _is_of(numbers, counted))
    yield from (tested for script in scripts for tested in script.unquoted_tests if not _is_one_of(words, tested))


def find_counted_names(scripts: Sequence[ShellScript]) -> list[str]:
    """Return the names that loops and arithmetic set, or may set."""
    names = [name for script in scripts for name, _ in script.loops]
    return names + [name for script in scripts for text in script.arithmetic for name in _NAME.findall(text)]


def _always(kind: re.Pattern[str], scripts: Sequence[ShellScript], setters: Collection[str]) -> set[str]:
    """Return the variables that are only ever assigned values of this kind."""
    known: dict[str, bool] = {}
    for command in (command for script in scripts for command in script.commands):
        sets = unquote(command.words[0]) in setters
        for word in command.words:
            if found := _ASSIGNS.fullmatch(word):
                known[found[1]] = known.get(found[1], True) and bool(kind.fullmatch(found[2]))
            elif sets:
                known[unquote(word)] = False
    for name, over in (loop for script in scripts for loop in script.loops):
        known[name] = known.get(name, True) and all(map(kind.fullmatch, over))
    return {name for name, holds in known.items() if holds}


def _is_of(numbers: Collection[str], text: str) -> bool:
    """Return whether an arithmetic text has no variables other than ``numbers``."""
    return not _ANYTHING.search(text) and all(name in numbers for name in _NAME.findall(text))


def _is_one_of(names: Collection[str], word: str) -> bool:
    """Return whether an expansion is a number or the value of one of ``names``."""
    named = _EXPANDED.fullmatch(word)
    return bool(_NUMBER.fullmatch(word) or _LENGTH.fullmatch(word)) or (named is not None and named[1] in names)

"""Checks that a call of pytest only uses the tests' own settings, and nothing of the agent's. Pure.

Only known options pass: an option may load a plugin, or name other settings or another folder. pytest ignores a path
that does not exist and looks for settings in its working directory.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from itertools import pairwise
from pathlib import PurePosixPath

from sandbox.grading.isolation.write_targets import is_safe_target
from sandbox.grading.shell_scripts.script import unquote

TESTS_PATH = re.compile(r"(?:\$TEST_DIR|\$\{TEST_DIR(?::-/tests)?\}|/tests)((?:/(?!\.\.)[\w.:-]*)*)(?:\[.*\])?")
"""Matches a path in the tests' folder as scripts write it; group 1 is what is below that folder."""
_FLAG = re.compile(
    r"-[vqsxl]*(?:r[A-Za-z]+)?|-pno:[\w.]+|--(?:verbose|quiet|exitfirst|showlocals|no-header|no-summary|"
    r"disable-(?:pytest-)?warnings|strict(?:-markers|-config)?|full-trace|runxfail|cache-clear)"
)
_WARNINGS = ("-W", "--pythonwarnings")
_VALUED = frozenset((
    "-k", "-m", "-r", *_WARNINGS, "--tb", "--maxfail", "--color", "--durations", "--durations-min",
    "--capture", "--show-capture", "--verbosity",
))  # fmt: skip
_REPORTS = frozenset(("--ctrf", "--junitxml", "--junit-xml"))
_NO_PLUGIN = re.compile(r"no:[\w.]+")
_SEVERAL = re.compile(r"[*?[{]")


def runs_only_tests(words: Sequence[str], tests: Collection[str]) -> bool:
    """Return whether the call only runs tests.

    ``words``: its arguments as written; ``tests``: paths below the tests' folder.
    """
    named = False
    left = iter(words)
    for word in left:
        option, equals, value = word.partition("=")
        if found := TESTS_PATH.fullmatch(unquote(word)):
            if not _is_there(found[1].partition("::")[0], tests):
                return False
            named = True
        elif option in _REPORTS:
            if not is_safe_target(value if equals else next(left, "")):
                return False
        elif _is_unwritten(word):
            return False
        elif option in _VALUED:
            if not equals and _is_unwritten(next(left, "$")):
                return False
        elif word == "-p":
            if not _NO_PLUGIN.fullmatch(unquote(next(left, ""))):
                return False
        elif not _FLAG.fullmatch(word):
            return False
    return named


def raises_warnings(words: Sequence[str]) -> bool:
    """Return whether such a call makes errors of warnings, which are others in each version of Python."""
    pairs = [*pairwise(words), *(tuple(word.split("=", 1)) for word in words if "=" in word)]
    return any(option in _WARNINGS and unquote(value).startswith("e") for option, value in pairs)


def _is_there(path: str, tests: Collection[str]) -> bool:
    below = str(PurePosixPath(path.strip("/")))
    return below == "." or any(each == below or each.startswith(f"{below}/") for each in tests)


def _is_unwritten(word: str) -> bool:
    """Return whether the shell may turn the word into other words."""
    return "$" in word or "`" in word or (word[:1] not in ('"', "'") and bool(_SEVERAL.search(word)))

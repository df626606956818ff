"""Checks that a call of rewardkit only uses the tests' own criteria, and no judge. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from sandbox.grading.isolation.pytest_call import TESTS_PATH
from sandbox.grading.isolation.write_targets import is_safe_target
from sandbox.grading.shell_scripts.script import unquote
from sandbox.toolchain.in_container.rewardkit_judges import find_judges

_PLAIN_VALUED = frozenset(("--workspace", "--max-concurrent-programmatic", "--mcprog", "--mcp"))
_PLAIN = re.compile(r"[\w./-]+")
"""Matches a word that the shell does not turn into others."""


def runs_only_criteria(words: Sequence[str], tests: Mapping[str, bytes]) -> bool:
    """Return whether the call only runs criteria; ``words``: its arguments as written."""
    named = False
    left = iter(words)
    for word in left:
        option, equals, value = word.partition("=")
        if TESTS_PATH.fullmatch(unquote(word)):
            named = True
        elif option in _PLAIN_VALUED:
            if not _PLAIN.fullmatch(unquote(value if equals else next(left, ""))):
                return False
        elif option != "--output" or not is_safe_target(value if equals else next(left, "")):
            return False
    return named and not find_judges(tests)

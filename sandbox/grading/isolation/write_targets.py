"""Where a test script may write: nowhere that an agent can have made a link to the tests.  Pure.

What is written through such a link would be a test, a ``conftest.py`` or the answer, and what it holds the agent's.
"""

from __future__ import annotations

import re

from sandbox.grading.shell_scripts.script import unquote

_SAFE = re.compile(r"/dev/(?:null|stdout|stderr|tty|fd/\d+)|/logs/verifier(?:/[\w-][\w.-]*)+|&?\d+-?|-")
"""Devices, descriptors, and the folder that the grader makes anew before the tests come in."""


def is_safe_target(word: str) -> bool:
    """``word`` is as the script has it, with quotes."""
    return bool(_SAFE.fullmatch(unquote(word)))

"""Checks that a test script writes only where an agent cannot have made a link to the tests. Pure.

Through such a link the agent's content would become a test, a ``conftest.py`` or the answer.
"""

from __future__ import annotations

import re

from sandbox.grading.shell_scripts.script import unquote

_SAFE = re.compile(r"/dev/(?:null|stdout|stderr|tty|fd/\d+)|/logs/verifier(?:/[\w-][\w.-]*)+|&?\d+-?|-")
"""Devices, descriptors, and the folder that the grader recreates before the tests are written."""


def is_safe_target(word: str) -> bool:
    """Return whether the target is safe; ``word`` is as the script writes it, with quotes."""
    return bool(_SAFE.fullmatch(unquote(word)))

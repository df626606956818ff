"""Decides which files of a repository are its tests', so that what an agent does to them counts for nothing. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable

_SETTINGS = ("pytest.ini", ".pytest.ini", "pytest.toml", ".pytest.toml", "pyproject.toml", "tox.ini", "setup.cfg")
"""Files in which pytest looks for its settings; the last ones have others' too."""
_TESTS = re.compile(
    rf"(?:.*/)?(?:tests?/.*|conftest\.py|test_[^/]*\.py|[^/]*_test\.py|{'|'.join(map(re.escape, _SETTINGS))})",
    re.DOTALL,
)
TESTS_PATTERNS = (
    *("**/test/**", "**/tests/**", "**/conftest.py", "**/test_*.py", "**/*_test.py"),
    *(f"**/{name}" for name in _SETTINGS),
)
"""The same as globs of git's."""


def is_tests_file(path: str) -> bool:
    """Return whether the file at ``path``, relative to the repository, is one of its tests or of their settings."""
    return _TESTS.fullmatch(path) is not None


def files_of_tests(names: Iterable[str]) -> list[str]:
    """Return the files of tests with names such as ``tests/test_a.py::test_x``, each once."""
    return list(dict.fromkeys(name.partition("::")[0] for name in names))

"""Reads the files of variables beside a compose file: the ``env_file`` of its services, and its own ``.env``.  Pure.

A line is ``NAME=VALUE``, with ``export`` or quotes or without. Left to Compose, as problems, are values that name other
variables or have escapes, since nobody can see whether they would be right.  Source: the Compose specification.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator, Sequence

from sandbox.tasks.container_files.compose_sections import ComposeEnvFile
from sandbox.tasks.file_tree import FileTree
from sandbox.tasks.problems import TaskProblems

_OWN = ".env"
_NAME = re.compile(r"\s*(?:export\s+)?([\w.-]+)")
_LINE = re.compile(
    r"""(?:export\s+)?(?P<name>[\w.-]+)\s*+[=:]\s*+(?:'(?P<single>[^']*+)'|"(?P<double>[^"]*+)"|(?P<plain>[^'"\s](?:\S|\s++(?!\#|\Z))*+)?)"""
    r"(?:\s++\#.*|\s*+)"
)


def read_env_files(
    given: Sequence[ComposeEnvFile], tree: FileTree, where: str, problems: TaskProblems
) -> dict[str, str]:
    """Return the variables of all files; a later file's come before an earlier one's."""
    found: dict[str, str] = {}
    for each in given:
        path = posixpath.normpath(each.path)
        if path in tree.files:
            found.update(_variables(problems.read_text(tree, path), f"{where}.env_file: {path}", problems))
        elif each.required:
            problems.add(f"{where}.env_file: {each.path} is missing", "it must be in the folder of the compose file")
    return found


def read_own_env_file(tree: FileTree, text: str, problems: TaskProblems) -> dict[str, str]:
    """Return the variables of ``.env`` that the compose file ``text`` may name; those of the harness come before
    them."""
    lines = problems.read_text(tree, _OWN).splitlines()
    named = ((_NAME.match(line), line) for line in lines)
    kept = "\n".join(line if name and name[1] in text else "" for name, line in named)
    return dict(_variables(kept, _OWN, problems))


def _variables(text: str, where: str, problems: TaskProblems) -> Iterator[tuple[str, str]]:
    for number, line in enumerate(map(str.strip, text.splitlines()), 1):
        if not line or line.startswith("#"):
            continue
        parts = _LINE.fullmatch(line)
        value = (
            next((each for each in parts.group("single", "double", "plain") if each is not None), "") if parts else ""
        )
        if parts is None or (parts["single"] is None and re.search(r"[$\\]", value)):
            problems.add(f"{where}:{number}", "it is not NAME=VALUE without variables and escapes")
        else:
            yield parts["name"], value

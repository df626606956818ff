"""Leaves out what the ``.harborignore`` files of ``tests`` and ``solution`` name, by Git's rules.  Pure."""

from __future__ import annotations

import re
from pathlib import PurePosixPath

from pathspec import GitIgnoreSpec

from sandbox.tasks.file_tree import FileTree
from sandbox.tasks.problems import TaskProblems

_RULES = re.compile(r"(?:steps/[^/]+/)?(?:tests|solution)/(?:.+/)?\.harborignore")
"""Paths at which Harbor reads rules; anywhere else a file of this name is one like any other."""


def without_ignored_files(tree: FileTree, problems: TaskProblems) -> FileTree:
    """Return the tree without the ignored files and without the rules; rules that cannot be read are problems."""
    rules = dict[PurePosixPath, GitIgnoreSpec]()
    for path in filter(_RULES.fullmatch, tree.files):
        try:
            rules[PurePosixPath(path).parent] = GitIgnoreSpec.from_lines(problems.read_text(tree, path).splitlines())
        except ValueError as error:
            problems.add(path, f"is not in the form of a .gitignore: {error}")
    if not rules:
        return tree
    return FileTree(
        {path: file for path, file in tree.files.items() if not _is_ignored(path, rules)},
        frozenset(path for path in tree.irregular if not _is_ignored(path, rules)),
    )


def _is_ignored(path: str, rules: dict[PurePosixPath, GitIgnoreSpec]) -> bool:
    """Return whether the rules name the path or a folder above it; of several rules the last and innermost decides.

    Nothing within a folder that is left out comes back.
    """
    place = PurePosixPath(path)
    for part in (*reversed(place.parents[:-1]), place):
        is_folder = part != place or path.endswith("/")
        verdicts = [
            rules[above].check_file(f"{part.relative_to(above)}{'/' if is_folder else ''}").include
            for above in reversed(part.parents)
            if above in rules
        ]
        decided = [verdict for verdict in verdicts if verdict is not None]
        if decided and decided[-1]:
            return True
    return bool(_RULES.fullmatch(path))

"""A folder → the build context that a Docker client would send: ``.dockerignore`` applied, executable bits kept.

What belongs to the harness and not to the image (tests, solution, task files) stays out, unless the Dockerfile names it
in a COPY: ``COPY . /app`` gives no answer away.  Pure.
"""

from __future__ import annotations

import fnmatch
import posixpath
import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from sandbox.tasks import dockerfile
from sandbox.tasks.problems import Problems
from sandbox.tasks.task import ImageBuild
from sandbox.tasks.tree import Tree

_IGNORE = ".dockerignore"


@dataclass(frozen=True, slots=True)
class BuildPlan:
    """What a compose file says of a build."""

    context: str = "."
    """Folder, relative to the compose file's; as it is read, both paths are in their shortest form."""
    dockerfile: str = "Dockerfile"
    """Relative to the context."""
    args: dict[str, str] = field(default_factory=dict[str, str])
    target: str = ""


def image_build(tree: Tree, plan: BuildPlan, private: Sequence[str], problems: Problems) -> ImageBuild | None:
    """The context of ``plan`` in ``tree``, less ``private`` paths.  None, with the reason noted, when there is none."""
    folder, name = plan.context, plan.dockerfile
    if folder.startswith(("..", "/")):
        problems.add(f"the build context {plan.context!r} lies outside the task", "only the task's own files are sent")
        return None
    inside = tree.below(folder)
    if name not in inside.files:
        problems.add(
            f"{posixpath.normpath(posixpath.join(folder, name))} is missing", "without it no image can be built"
        )
        return None
    parsed = dockerfile.instructions(problems.text(inside, name))
    if not any(each.name == "FROM" for each in parsed):
        problems.add(f"{name} names no image", "it has no FROM")
    named = tuple(dockerfile.copied(parsed))
    hidden = [path for path in private if not any(_inside(source, path) for source in named)]
    inside = inside.without(*hidden) if folder == "." else inside
    kept = _not_ignored(inside, problems.text(inside, _IGNORE), {name, _IGNORE})
    for link in sorted(kept.odd):
        problems.add(
            f"{posixpath.normpath(posixpath.join(folder, link))} is a link", "a build context has regular files only"
        )
    for source in named:
        if not _found(source, kept):
            problems.add(f"{name} copies {source!r}, which is not in its context", "the build would fail")
    return ImageBuild(kept.data(), name, kept.executable(), dict(plan.args), plan.target)


def _inside(path: str, folder: str) -> bool:
    return path == folder or path.startswith(f"{folder}/")


def _found(source: str, tree: Tree) -> bool:
    if source == ".":
        return True
    paths = [*tree.files, *tree.odd]
    if any(_inside(path, source) for path in paths):
        return True
    depth = source.count("/") + 1
    return any(
        fnmatch.fnmatchcase("/".join(path.split("/")[:depth]), source) for path in paths if path.count("/") + 1 >= depth
    )


def _not_ignored(tree: Tree, rules: str, always: set[str]) -> Tree:
    patterns = [
        (not rule.startswith("!"), _pattern(rule.removeprefix("!").strip()))
        for rule in map(str.strip, rules.splitlines())
        if rule and not rule.startswith("#")
    ]

    def kept(path: str) -> bool:
        if path in always:
            return True
        ignored = False
        parts = path.split("/")
        parents = ["/".join(parts[: n + 1]) for n in range(len(parts))]
        for ignore, pattern in patterns:  # the last rule that matches the path or a folder above it decides
            if any(pattern.fullmatch(parent) for parent in parents):
                ignored = ignore
        return not ignored

    files = {path: file for path, file in tree.files.items() if kept(path)}
    return Tree(files, frozenset(path for path in tree.odd if kept(path)))


def _pattern(rule: str) -> re.Pattern[str]:
    """A ``.dockerignore`` pattern: ``*`` and ``?`` stop at ``/``, ``**`` is any number of folders."""
    clean = posixpath.normpath(rule).lstrip("/")
    parts = re.split(r"(\*\*/|\*\*|\*|\?|\[[^]]*\])", clean)
    special = {"**/": "(?:.*/)?", "**": ".*", "*": "[^/]*", "?": "[^/]"}
    return re.compile("".join(special.get(part) or _literal(part) for part in parts))


def _literal(part: str) -> str:
    return part if part.startswith("[") else re.escape(part)

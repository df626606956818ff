"""Reads a folder as the build context that a Docker client would send: ``.dockerignore`` applied (or the
Dockerfile's own, ``Dockerfile.dockerignore``), times of files and whether they are executable kept.

Files of the harness (tests, solution, task files) are left out unless a COPY of the Dockerfile names them, so that
``COPY . /app`` does not reveal an answer. Pure except for :func:`load_build_context`.
"""

from __future__ import annotations

import posixpath
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path

from protocol.errors import UserError
from sandbox.tasks.container_files.add_sources import UnsupportedSyntaxError
from sandbox.tasks.container_files.buildkit_syntax import to_classic
from sandbox.tasks.container_files.dockerfile import (
    DockerfileInstruction,
    copied_sources,
    copies_path,
    parse_instructions,
)
from sandbox.tasks.container_files.dockerfile_faults import find_dockerfile_faults
from sandbox.tasks.container_files.ignored_paths import IgnoreRule, parse_ignore_rule
from sandbox.tasks.file_tree import FileTree, as_tree_files, is_within, read_tree
from sandbox.tasks.problems import TaskProblems
from sandbox.tasks.task_containers import ImageBuild

_IGNORE = ".dockerignore"
_INLINE = ".longshore-Dockerfile"
"""Name of a Dockerfile whose text is in the compose file; no COPY sees it."""
_MOST_FAULTS = 10
"""Maximum faults of a Dockerfile that are named."""
_SHOWN = 100
"""Maximum characters of a rule that are shown."""


@dataclass(frozen=True, slots=True)
class BuildPlan:
    """The ``build`` section of a service.  Both paths are normalized when they are read."""

    context: str = "."
    """Folder, relative to the compose file."""
    dockerfile: str = "Dockerfile"
    """Path relative to the context."""
    args: dict[str, str] = field(default_factory=dict[str, str])
    target: str = ""
    inline: str = ""
    """Text of the Dockerfile if it is no file; ``dockerfile`` is then the name under which it is sent."""

    @classmethod
    def of_inline(cls, context: str, text: str, args: dict[str, str], target: str) -> BuildPlan:
        """Return the plan of a build whose Dockerfile is ``text``."""
        return cls(context, _INLINE, args, target, text)

    def context_in(self, tree: FileTree) -> FileTree:
        """Return the files of the context, with the Dockerfile."""
        inside = tree.subtree(self.context)
        if not self.inline:
            return inside
        ignored = inside.files[_IGNORE].data if _IGNORE in inside.files else _IGNORE.encode()
        added = {_IGNORE: ignored + f"\n{_INLINE}\n".encode(), self.dockerfile: self.inline.encode()}
        return replace(inside, files=inside.files | as_tree_files(added))


def read_build_context(
    tree: FileTree, plan: BuildPlan, private: Sequence[str], problems: TaskProblems
) -> ImageBuild | None:
    """Return the context of ``plan`` in ``tree`` without ``private`` paths; None, with problems, if it is unusable."""
    folder, name = plan.context, plan.dockerfile
    if folder.startswith(("..", "/")):
        problems.add(f"the build context {plan.context!r} lies outside the task", "only the task's own files are sent")
        return None
    inside = plan.context_in(tree)
    if name not in inside.files:
        problems.add(
            f"{posixpath.normpath(posixpath.join(folder, name))} is missing", "the image cannot be built without it"
        )
        return None
    text = problems.read_text(inside, name)
    parsed = parse_instructions(text)
    faults = list(islice(find_dockerfile_faults(text), _MOST_FAULTS))
    if not any(each.name == "FROM" for each in parsed):
        problems.add(f"{name} names no image", "it has no FROM")
    for fault in faults:
        problems.add(f"{name}, line {fault.line}: {fault.what}", fault.why)
    named = tuple(copied_sources(parsed))
    if folder == ".":
        inside = without_private(inside, parsed, private)
    own_rules = f"{name}{_IGNORE}"
    kept = _not_ignored(inside, own_rules if own_rules in inside.files else _IGNORE, {name, _IGNORE}, problems)
    for link in sorted(kept.irregular):
        problems.add(
            f"{posixpath.normpath(posixpath.join(folder, link))} is not a regular file",
            "a build context has only regular files",
        )
    if lost := kept.lost_modes():
        more = f" and {len(lost) - 1} more" if len(lost) > 1 else ""
        problems.remark(
            f"{posixpath.normpath(posixpath.join(folder, lost[0]))}{more} with permissions that no image gets: of a "
            "file's own only whether it can be executed is kept, as by git; COPY --chmod says others"
        )
    for source in named:
        if not _found(source, kept):
            problems.add(f"{name} copies {source!r}, which is not in its context", "the build would fail")
    build = ImageBuild(
        kept.contents(), name, kept.executable_paths(), dict(plan.args), plan.target, kept.modification_times()
    )
    try:
        to_classic(build, architecture="amd64")
    except UnsupportedSyntaxError as error:
        if not faults:
            problems.add(f"{name}: {error.what}", error.why)
    return build


def without_private(tree: FileTree, parsed: Sequence[DockerfileInstruction], private: Sequence[str]) -> FileTree:
    """Leave out the paths in ``private`` that no COPY names."""
    named = [source for source in copied_sources(parsed) if is_within(source, private)]
    return tree.filtered(lambda path: not is_within(path, private) or any(copies_path(each, path) for each in named))


def load_build_context(folder: Path, dockerfile: str = "Dockerfile") -> ImageBuild:
    """Read a folder on disk as a build context; links that stay within it are followed.

    Raises UserError if it has no such Dockerfile, is too large, or holds anything other than files.
    """
    problems = TaskProblems(folder)
    tree = read_tree(folder)
    build = read_build_context(tree, BuildPlan(dockerfile=dockerfile), (), problems)
    if build is None or problems.found:
        first = problems.found[0]
        raise UserError(f"build context {folder}: {first.what}: {first.why}")
    return build


def _found(source: str, tree: FileTree) -> bool:
    return source == "." or any(copies_path(source, path) for path in (*tree.files, *tree.irregular))


def _not_ignored(tree: FileTree, rules_file: str, always: set[str], problems: TaskProblems) -> FileTree:
    """Leave out what ``rules_file`` says, except for the paths in ``always``."""
    rules: list[IgnoreRule] = []
    for line in problems.read_text(tree, rules_file).split("\n"):
        try:
            rules += [rule] if (rule := parse_ignore_rule(line)) else []
        except ValueError as error:
            problems.add(f"{rules_file}: {line.strip()[:_SHOWN]!r} is not a pattern", str(error))

    def kept(path: str) -> bool:
        if path in always:
            return True
        ignored = False
        for rule in rules:  # the last rule that matches the path or a folder above it decides
            if rule.ignores is not ignored and rule.matches(path):
                ignored = rule.ignores
        return not ignored

    return tree.filtered(kept)

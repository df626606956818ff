"""Copies into an image what a compose file would mount from the task's own folder.  Pure.

As under a mount, nothing of the image is left in such a folder.  A folder that has the whole task lacks its solution,
unless a COPY names that.
"""

from __future__ import annotations

import json
import posixpath
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

from sandbox.tasks.container_files.build_context import without_private
from sandbox.tasks.container_files.dockerfile import DockerfileInstruction, parse_instructions
from sandbox.tasks.file_tree import FileTree, is_within
from sandbox.tasks.problems import REGULAR_FILES_ONLY, TaskProblems
from sandbox.tasks.task_containers import ImageBuild

HOST_FOLDERS = ".longshore-volumes"
"""Folder of the copied files in the build context."""
_ANSWERS = ("solution.sh", "solution.yaml", "longshore.yaml")


class HostFolder(NamedTuple):
    """A volume of the task's own files."""

    source: str
    """Path relative to the compose file, of a file or a folder; ``.`` for all of the task."""
    target: str
    read_only: bool


def build_from(image: str) -> ImageBuild:
    """Return a build of an image that exists."""
    return ImageBuild({"Dockerfile": f"FROM {image}\n".encode()})


def copy_host_folders(
    build: ImageBuild,
    folders: Sequence[HostFolder],
    tree: FileTree,
    problems: TaskProblems,
) -> ImageBuild:
    """Return the build of ``build``'s image with ``folders`` of ``tree``."""
    parsed = parse_instructions(build.files[build.dockerfile].decode(errors="replace"))
    files, executable, modified_s = dict(build.files), set(build.executable), dict(build.modified_s)
    lines = [f"FROM {build.target}"] if build.target else []
    users = [each.arguments for each in _stage(parsed, build.target) if each.name == "USER"]
    lines += ["USER 0:0"] if users else []
    for folder in sorted(folders, key=lambda each: each.target):
        seen = without_private(tree, parsed, _ANSWERS) if folder.source == "." else tree
        own = seen.filtered(lambda path, source=folder.source: source == "." or is_within(path, [source]))
        for path in sorted(own.irregular):
            problems.add(f"{path} is not a regular file", REGULAR_FILES_ONLY)
        files |= {f"{HOST_FOLDERS}/{path}": data for path, data in own.contents().items()}
        executable |= {f"{HOST_FOLDERS}/{path}" for path in own.executable_paths()}
        modified_s |= {f"{HOST_FOLDERS}/{path}": time_s for path, time_s in own.modification_times().items()}
        lines += _instructions(folder, own)
    lines += [f"USER {users[-1]}"] if users else []
    text = build.files[build.dockerfile].rstrip(b"\n") + b"\n" + "".join(f"{line}\n" for line in lines).encode()
    return replace(
        build,
        files={**files, build.dockerfile: text},
        executable=frozenset(executable),
        modified_s=modified_s,
        target="",
    )


def _instructions(folder: HostFolder, own: FileTree) -> Iterator[str]:
    source, target = posixpath.normpath(f"{HOST_FOLDERS}/{folder.source}"), folder.target.rstrip("/")
    if folder.source not in own.files:
        place = shlex.quote(target)
        yield f"RUN {json.dumps(['sh', '-c', f'rm -rf {place} && mkdir -p {place}'])}"
    if own.files:
        yield f"COPY {json.dumps([source, target if folder.source in own.files else f'{target}/'])}"


def _stage(parsed: Sequence[DockerfileInstruction], target: str) -> list[DockerfileInstruction]:
    """Return the instructions of the stage ``target``, or of the last one."""
    found: list[DockerfileInstruction] = []
    for each in parsed:
        if each.name == "FROM":
            if target and found and found[0].arguments.lower().split()[-1] == target.lower():
                break
            found = []
        found.append(each)
    return found

"""Reads the volumes of a compose file's services: copies of the task's own files, and folders that services share.
Pure.

A volume that one service alone has is a plain folder of its container.
"""

from __future__ import annotations

import posixpath
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from itertools import permutations

from sandbox.tasks.container_files.compose_schema import ComposeFile, ComposeService
from sandbox.tasks.container_files.compose_sections import ComposeVolume
from sandbox.tasks.container_files.host_folders import HostFolder
from sandbox.tasks.file_tree import FileTree, is_within
from sandbox.tasks.problems import TaskProblems
from sandbox.tasks.task_containers import SharedFolder

HARNESS_FOLDER = "/harness/"
"""Prefix of the harness's own host paths: a volume from there is ignored."""


def read_host_folders(
    given: ComposeService, tree: FileTree, where: str, problems: TaskProblems
) -> tuple[HostFolder, ...]:
    """Return the volumes of the task's own files; one of other files of the host is a problem."""
    found: list[HostFolder] = []
    for volume in given.volumes:
        if volume.type != "bind" or volume.source.startswith(HARNESS_FOLDER):
            continue
        source = posixpath.normpath(volume.source)
        if _is_foreign(source):
            problems.add(
                f"{where}.volumes: {volume.source!r} is not the task's own",
                "a sandbox gets a copy of folders beside the compose file, and nothing else of the host",
            )
            continue
        is_file = source in tree.files
        if volume.read_only and is_file:
            problems.remark(f"{where}.volumes: {source!r} is read-only for other users than root only: it is a file")
        found.append(HostFolder(source, posixpath.normpath(volume.target), volume.read_only and not is_file))
    return tuple(found)


def find_shared_volumes(services: Iterable[ComposeService], tree: FileTree) -> frozenset[str]:
    """Return the names of the volumes, and of the folders of the task's own files, that several services have.

    Files that none of them can write need no sharing: each has a copy.
    """
    users, writable = Counter[str](), set[str]()
    for service in services:
        mounts = {_name_of(each, tree): each for each in service.volumes}
        users.update(mounts.keys())
        writable |= {name for name, each in mounts.items() if each.type == "volume" or not each.read_only}
    return frozenset(name for name, count in users.items() if name and count > 1 and name in writable)


def check_named_volumes(
    services: Mapping[str, ComposeService], file: ComposeFile, where: str, problems: TaskProblems
) -> None:
    """Add a problem for each named volume that the file does not have."""
    for key, service in services.items():
        named = (each.source for each in service.volumes if each.type == "volume")
        for name in dict.fromkeys(filter(None, named)):
            if name not in file.volumes:
                problems.add(
                    f"{where}: services.{key}.volumes: {name}",
                    f"Compose refuses it: name it below volumes, or write ./{name} for a folder of the task",
                )


def remark_separate_copies(
    services: Mapping[str, ComposeService], tree: FileTree, where: str, problems: TaskProblems
) -> None:
    """Remark on what one service writes and another does not see: single files, and folders inside each other."""
    mounts = [
        (key, posixpath.normpath(each.source), each.read_only)
        for key, service in services.items()
        for each in service.volumes
        if each.type == "bind"
    ]
    for (key, outer, fixed), (other, inner, also_fixed) in permutations(mounts, 2):
        apart = (inner != outer and (outer == "." or is_within(inner, [outer]))) or (
            inner == outer in tree.files and key < other
        )
        if apart and key != other and not (fixed and also_fixed):
            problems.remark(f"{where}: services {key} and {other} have a copy of {inner!r} each")


def read_shared_folders(given: ComposeService, shared: frozenset[str], tree: FileTree) -> tuple[SharedFolder, ...]:
    """Return the folders of a service that are among the ``shared`` volumes."""
    named = ((_name_of(each, tree), each) for each in given.volumes)
    return tuple(
        SharedFolder(name, posixpath.normpath(each.target), each.read_only) for name, each in named if name in shared
    )


def _is_foreign(source: str) -> bool:
    return source.startswith(("/", "~", ".."))


def _name_of(volume: ComposeVolume, tree: FileTree) -> str:
    """Return the name under which a volume can be shared; empty for one that cannot."""
    if volume.type == "volume":
        return volume.source
    source = posixpath.normpath(volume.source)
    if _is_foreign(source) or source in tree.files:
        return ""
    return "folder." + re.sub(r"[^a-zA-Z0-9-]", lambda found: f"_{ord(found[0]):x}_", source)

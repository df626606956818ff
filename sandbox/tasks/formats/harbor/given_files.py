"""Reads the files that a Harbor task gives to the agent: the instruction, and loose files of its environment.  Pure.

Source: Harbor 0.26.0, ``harbor/models/task/task.py`` and ``harbor/environments/definition.py``.
"""

from __future__ import annotations

import json
from itertools import dropwhile

from sandbox.tasks.file_tree import FileTree
from sandbox.tasks.formats.harbor.schema import TESTS_IMAGE, HarborEnvironment
from sandbox.tasks.problems import TaskProblems
from sandbox.tasks.task_containers import ImageBuild


def read_instruction(tree: FileTree, path: str, problems: TaskProblems, needed: str = "") -> str:
    """Return the instruction without its canary, of which Harbor tells no agent: lines at the beginning that mark a
    published text, so that it can be found in training data.

    Empty if it is missing, and then a problem if it is ``needed``.
    """
    lines = problems.read_text(tree, path, needed).split("\n")
    told = list(dropwhile(_is_canary, lines))
    if needed and len(told) < len(lines) and not any(map(str.strip, told)):
        problems.add(f"{path} has only a canary", needed)
    return "\n".join(told).strip()


def _is_canary(line: str) -> bool:
    text = line.strip().lower()
    return "canary" in text and (text.startswith("#") or (text.startswith("<!--") and text.endswith("-->")))


def build_with_loose_files(environment: HarborEnvironment, tree: FileTree, problems: TaskProblems) -> ImageBuild | None:
    """Return the named image with the files of ``environment/`` in its working directory, as Harbor uploads them if
    they neither build an image nor name services; None if there are none."""
    folder = tree.subtree("environment")
    if not environment.docker_image or not (folder.files or folder.irregular) or TESTS_IMAGE & folder.files.keys():
        return None
    files = {f"environment/{path}": data for path, data in problems.read_regular_files(tree, "environment").items()}
    lines = [f"FROM {environment.docker_image}"]
    lines += [f"WORKDIR {environment.workdir}"] if environment.workdir else []
    lines += [f"COPY {json.dumps(['environment/', './'])}"]
    executable = frozenset(f"environment/{path}" for path in folder.executable_paths())
    modified_s = {f"environment/{path}": time_s for path, time_s in folder.modification_times().items()}
    dockerfile = "".join(f"{line}\n" for line in lines).encode()
    return ImageBuild({"Dockerfile": dockerfile, **files}, executable=executable, modified_s=modified_s)

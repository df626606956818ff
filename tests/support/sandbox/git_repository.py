"""Build contexts of images with Python, pytest, this machine's git, and a repository in ``/app``."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

from sandbox.tasks.task_containers import ImageBuild
from tests.support.sandbox.shell_image import libraries_of

_WRAPPER = b'#!/bin/sh\nexec /opt/git/loader --library-path /opt/git --argv0 git /opt/git/git "$@"\n'
SECRET = "as it was before the bug"
"""Message of a commit in the repository's history."""


def repository_build(base_image: str, folder: Path, files: Mapping[str, str]) -> ImageBuild:
    """Return the context of an image whose ``/app`` is a clone with two commits, the second of which has ``files``."""
    repository = folder / "repository"
    for path, text in files.items():
        target = repository / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text)
    for command in (
        ("init", "-q"),
        ("commit", "-q", "--allow-empty", "-m", SECRET),
        ("add", "-A"),
        ("commit", "-q", "-m", "second"),
        ("tag", "v1"),
    ):
        subprocess.run(["git", "-c", "user.name=x", "-c", "user.email=x@x", *command], cwd=repository, check=True)
    app = {f"app/{path.relative_to(repository)}": path.read_bytes() for path in repository.rglob("*") if path.is_file()}
    dockerfile = f"FROM {base_image}\nCOPY git /opt/git\nCOPY wrapper /usr/local/bin/git\nCOPY app /app\nWORKDIR /app\n"
    return ImageBuild(
        {"Dockerfile": dockerfile.encode(), "wrapper": _WRAPPER, **_git_files(), **app},
        executable=frozenset(["wrapper", "git/git", "git/loader"]),
    )


def _git_files() -> dict[str, bytes]:
    program = shutil.which("git") or ""
    libraries = [Path(found) for found in libraries_of(program)]
    files = {("loader" if each.name.startswith("ld-") else each.name): each.read_bytes() for each in libraries}
    return {f"git/{name}": data for name, data in {**files, "git": Path(program).read_bytes()}.items()}

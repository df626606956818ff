"""A build context: from a folder, and to the tar that an engine takes."""

from __future__ import annotations

import io
import os
import tarfile
from pathlib import Path

from protocol.errors import UserError
from sandbox.tasks.task import ImageBuild

_MOST_BYTES = 512 << 20


def read_build_folder(folder: Path, dockerfile: str = "Dockerfile") -> ImageBuild:
    """A folder as a context.  Raises UserError for one without a Dockerfile, with links out of it, or too large."""
    files: dict[str, bytes] = {}
    executable: set[str] = set()
    size = 0
    for path in sorted(folder.rglob("*")):
        if not path.is_file():
            continue
        if not path.resolve().is_relative_to(folder.resolve()):
            raise UserError(f"build context {folder}: {path.name} is a link that leaves the folder: copy the file in")
        size += path.stat().st_size
        if size > _MOST_BYTES:
            raise UserError(
                f"build context {folder} is larger than {_MOST_BYTES >> 20} MiB: take out what is not needed"
            )
        name = path.relative_to(folder).as_posix()
        files[name] = path.read_bytes()
        if os.access(path, os.X_OK):
            executable.add(name)
    if dockerfile not in files:
        raise UserError(f"build context {folder} has no {dockerfile}: name a folder that has one")
    return ImageBuild(files, dockerfile, frozenset(executable))


def pack_context(build: ImageBuild) -> bytes:
    """The same bytes for equal contexts: no clock, no owner, in order."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tar:
        for name, content in sorted(build.files.items()):
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode = len(content), 0o755 if name in build.executable else 0o644
            tar.addfile(entry, io.BytesIO(content))
    return out.getvalue()

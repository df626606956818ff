"""Packs a build context as the tar that an engine expects. Pure."""

from __future__ import annotations

import io
import tarfile

from sandbox.tasks.task import ImageBuild


def pack_context(build: ImageBuild) -> bytes:
    """Return a tar of the context: equal contexts give equal bytes (sorted, without times and owners)."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tar:
        for name, content in sorted(build.files.items()):
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode = len(content), 0o755 if name in build.executable else 0o644
            tar.addfile(entry, io.BytesIO(content))
    return out.getvalue()

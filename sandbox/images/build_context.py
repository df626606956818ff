"""Packs a build context as the tar that an engine expects. Pure."""

from __future__ import annotations

import io
import tarfile
from collections.abc import Mapping

from sandbox.tasks.task import ImageBuild


def pack_context(build: ImageBuild, modes: Mapping[str, int]) -> bytes:
    """Return a tar of the context: equal contexts give equal bytes (sorted, without times and owners).

    ``modes``: permissions by path of files that have others than those of ``build``.
    """
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tar:
        for name, content in sorted(build.files.items()):
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            entry.mode = modes.get(name, 0o755 if name in build.executable else 0o644)
            tar.addfile(entry, io.BytesIO(content))
    return out.getvalue()

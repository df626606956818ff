"""Packs a build context as the tar that an engine expects. Pure."""

from __future__ import annotations

import tarfile
from collections.abc import Iterator, Mapping

from sandbox.tasks.task_containers import ImageBuild

_PIECE_BYTES = 1 << 20


def pack_context(build: ImageBuild, modes: Mapping[str, int], now_s: int) -> Iterator[bytes | memoryview]:
    """Yield a tar of the context: sorted, without owners.

    ``modes``: permissions by path of files that have others than those of ``build``, and of folders, which a builder
    makes otherwise.  ``now_s``: the Unix time of what has none of its own.  The pieces are small, and share the memory
    of the files.
    """
    for name in sorted(modes.keys() - build.files.keys()):
        folder = tarfile.TarInfo(f"{name}/")
        folder.type, folder.mode, folder.mtime = tarfile.DIRTYPE, modes[name], now_s
        yield folder.tobuf()
    for name, content in sorted(build.files.items()):
        entry = tarfile.TarInfo(name)
        entry.mtime = build.modified_s.get(name, now_s)
        if name.endswith("/"):
            entry.type, entry.mode = tarfile.DIRTYPE, modes.get(name, 0o755)
            yield entry.tobuf()
            continue
        entry.size = len(content)
        entry.mode = modes.get(name, 0o755 if name in build.executable else 0o644)
        yield entry.tobuf()
        yield from (memoryview(content)[at : at + _PIECE_BYTES] for at in range(0, len(content), _PIECE_BYTES))
        if padding := -len(content) % tarfile.BLOCKSIZE:
            yield bytes(padding)
    yield bytes(tarfile.BLOCKSIZE * 2)

"""Checks an archive of images before it is loaded: an engine compares only the layers with what the images say."""

from __future__ import annotations

import hashlib
import re
import tarfile
from pathlib import Path

from sandbox.errors import ImageError

_NAMED = re.compile(r"(?:blobs/sha256/)?([0-9a-f]{64})(?:\.json)?")
"""Files that are named by their digest: configurations and, in the layout of newer engines, manifests and layers."""
_ZSTANDARD = b"\x28\xb5\x2f\xfd"
"""First bytes of a compressed archive that Python does not read."""
_MOST_BYTES = 4 << 20
"""Maximum size of a file that is checked; a larger one is a layer, which the engine checks itself."""


def check_archive(archive: Path) -> None:
    """Raise ImageError for a file that is no archive, or if a configuration in one is not what its name says.  What
    ends too early, or is compressed in a way that only engines read, is the engine's to refuse.  Blocking."""
    if not _is_archive(archive):
        raise ImageError(f"{archive} is not an archive: name one that longshore images save has written")
    try:
        with tarfile.open(archive) as tar:
            for member in tar:
                named = _NAMED.fullmatch(member.name)
                if named is None or not member.isfile() or member.size > _MOST_BYTES:
                    continue
                file = tar.extractfile(member)
                if file and hashlib.sha256(file.read()).hexdigest() != named[1]:
                    raise ImageError(f"{archive} is damaged: {member.name} is not what its name says; copy it again")
    except (tarfile.TarError, EOFError, OSError):
        return


def _is_archive(file: Path) -> bool:
    with file.open("rb") as opened:
        if opened.read(len(_ZSTANDARD)) == _ZSTANDARD:
            return True
    try:
        return tarfile.is_tarfile(file)
    except (EOFError, OSError):  # it is compressed, and damaged
        return True

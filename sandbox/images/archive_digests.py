"""Checks an archive of images before it is loaded: an engine compares only the layers with what the images say."""

from __future__ import annotations

import hashlib
import re
import tarfile
from pathlib import Path

from sandbox.errors import ImageError

_NAMED = re.compile(r"(?:blobs/sha256/)?([0-9a-f]{64})(?:\.json)?")
"""Files that are named by their digest: configurations and, in the layout of newer engines, manifests and layers."""
_MOST_BYTES = 4 << 20
"""Maximum size of a file that is checked; a larger one is a layer, which the engine checks itself."""


def check_archive(archive: Path) -> None:
    """Raise ImageError if a configuration in the archive is not what its name says; what is no tar is the engine's to
    refuse.  Blocking."""
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

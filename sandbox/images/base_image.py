"""The base image: a small Debian, built from Debian's packages without a registry. Blocking, idempotent."""

from __future__ import annotations

import hashlib
import shutil
import tempfile
from pathlib import Path

from sandbox.docker.daemon import ReportLine, apt_install, create_image, run_program

DEBIAN_SUITE = "bookworm"
PACKAGES = (
    "bash", "bzip2", "ca-certificates", "coreutils", "diffutils", "file", "findutils", "gawk", "grep", "gzip", "jq",
    "less", "procps", "python3-minimal", "sed", "sqlite3", "tar", "tree", "util-linux", "vim-tiny", "xz-utils",
)  # fmt: skip
_KEYRING = Path("/usr/share/keyrings/debian-archive-keyring.gpg")
"""Key that signs the packages; on Ubuntu it comes with a package."""
_OTHERWISE = "use an image that exists or can be pulled: export LONGSHORE_BASE_IMAGE=debian:bookworm"
_EXCLUDED = ("/usr/share/doc/*", "/usr/share/man/*", "/usr/share/locale/*", "/usr/share/info/*")


def base_image_tag() -> str:
    """Return the base image's name, which changes with its recipe."""
    recipe = repr((DEBIAN_SUITE, PACKAGES, _EXCLUDED, 1))
    return f"longshore/base:{hashlib.sha256(recipe.encode()).hexdigest()[:12]}"


def build_base_image(url: str, say: ReportLine) -> str:
    """Build the base image from Debian packages, without a registry, and return its name."""
    name = base_image_tag()
    if shutil.which("mmdebstrap") is None or not _KEYRING.exists():
        apt_install(("mmdebstrap", "debian-archive-keyring"), say, otherwise=_OTHERWISE)
    say(f"building {name} from Debian packages (about 30 s) …")
    with tempfile.TemporaryDirectory(prefix="longshore-base-") as folder:
        archive = Path(folder) / "base.tar"
        options = ("--variant=minbase", f"--keyring={_KEYRING}", f"--include={','.join(PACKAGES)}")
        excluded = [f"--dpkgopt=path-exclude={path}" for path in _EXCLUDED]
        run_program(("mmdebstrap", *options, *excluded, DEBIAN_SUITE, str(archive)), "build the base image")
        with archive.open("rb") as body:
            create_image(url, "import the base image", body=body, fromSrc="-", repo=name, changes='CMD ["bash"]')
    return name

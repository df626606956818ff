"""Images with Debian's own Python, each built once per engine, by its recipe."""

from __future__ import annotations

import fcntl
import hashlib
import tempfile
from collections.abc import Sequence
from pathlib import Path

from sandbox.docker import daemon
from sandbox.host_record import SandboxHost
from sandbox.images.base_image import DEBIAN_SUITE

_PACKAGES = ("bash", "coreutils", "findutils", "grep", "procps", "python3", "sed", "util-linux")
_WITHOUT = ("/usr/share/doc/*", "/usr/share/man/*", "/usr/share/locale/*", "/usr/share/info/*")
_CERTIFICATES = "/etc/ssl/certs/ca-certificates.crt"


def python_image(host: SandboxHost) -> str:
    """Return the name of an image with pytest, for graders that are pytest.

    Blocks half a minute the first time; concurrent processes build it once."""
    return _image(host, (*_PACKAGES, "python3-pytest"), _WITHOUT)


def pip_image(host: SandboxHost) -> str:
    """Return the name of an image whose pip installs for all users and trusts whom this machine trusts: the stand-in
    for the official images of Python, where no registry is reached."""
    without = (*_WITHOUT, "/usr/lib/python3*/EXTERNALLY-MANAGED")
    return _image(host, (*_PACKAGES, "ca-certificates", "python3-pip"), without, (_CERTIFICATES,))


def _image(host: SandboxHost, packages: Sequence[str], without: Sequence[str], copied: Sequence[str] = ()) -> str:
    recipe = repr((DEBIAN_SUITE, packages, without, copied))
    name = f"longshore-test/python:{hashlib.sha256(recipe.encode()).hexdigest()[:12]}"
    with Path(tempfile.gettempdir(), "longshore-python-image.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not daemon.has_image(host.docker_url, name):
            _build(host.docker_url, name, packages, without, copied)
    return name


def _build(url: str, name: str, packages: Sequence[str], without: Sequence[str], copied: Sequence[str]) -> None:
    with tempfile.TemporaryDirectory(prefix="longshore-python-") as folder:
        archive = str(Path(folder, "root.tar"))
        excluded = [f"--dpkgopt=path-exclude={path}" for path in without]
        hooks = [f"--customize-hook=upload {path} {path}" for path in copied]
        daemon.run_program(
            (
                "mmdebstrap",
                "--variant=minbase",
                f"--include={','.join(packages)}",
                *excluded,
                *hooks,
                DEBIAN_SUITE,
                archive,
            ),
            "build an image with Python",
        )
        daemon.run_program(
            ("docker", "--host", url, "import", "--change", 'CMD ["bash"]', archive, name), "import the image"
        )

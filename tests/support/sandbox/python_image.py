"""An image with Debian's own Python and pytest, for graders that are pytest: built once per engine, by its recipe."""

from __future__ import annotations

import fcntl
import hashlib
import tempfile
from pathlib import Path

from sandbox.docker import daemon
from sandbox.host_record import SandboxHost
from sandbox.images.base_image import DEBIAN_SUITE

_PACKAGES = ("bash", "coreutils", "findutils", "grep", "procps", "python3", "python3-pytest", "sed", "util-linux")
_WITHOUT = ("/usr/share/doc/*", "/usr/share/man/*", "/usr/share/locale/*", "/usr/share/info/*")


def python_image(host: SandboxHost) -> str:
    """Return the image's name. Blocks half a minute the first time; concurrent processes build it once."""
    recipe = repr((DEBIAN_SUITE, _PACKAGES, _WITHOUT))
    name = f"longshore-test/python:{hashlib.sha256(recipe.encode()).hexdigest()[:12]}"
    with Path(tempfile.gettempdir(), "longshore-python-image.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not daemon.has_image(host.docker_url, name):
            _build(host.docker_url, name)
    return name


def _build(url: str, name: str) -> None:
    with tempfile.TemporaryDirectory(prefix="longshore-python-") as folder:
        archive = str(Path(folder, "root.tar"))
        excluded = [f"--dpkgopt=path-exclude={path}" for path in _WITHOUT]
        daemon.run_program(
            (
                "mmdebstrap",
                "--variant=minbase",
                f"--include={','.join(_PACKAGES)}",
                *excluded,
                DEBIAN_SUITE,
                archive,
            ),
            "build an image with Python and pytest",
        )
        daemon.run_program(
            ("docker", "--host", url, "import", "--change", 'CMD ["bash"]', archive, name), "import the image"
        )

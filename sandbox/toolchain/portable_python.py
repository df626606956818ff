"""Copies a Python so that it runs in any image (:mod:`sandbox.toolchain.relocation`). Blocking."""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass
from pathlib import Path

from protocol.errors import UserError
from sandbox.docker.daemon import run_program
from sandbox.toolchain.in_container.layout import PYTHONS, VERIFY
from sandbox.toolchain.relocation import relocate_program, remove_rpath

_OPENSSL = f"{VERIFY}/openssl.cnf"
SITE_CUSTOMIZE = f"""\
import os
given = os.environ.get("OPENSSL_CONF")
os.environ["OPENSSL_CONF"] = "{_OPENSSL}"
try:
    import _hashlib  # OpenSSL reads its settings now, once
except ImportError:
    pass
finally:
    del os.environ["OPENSSL_CONF"]
    if given is not None:
        os.environ["OPENSSL_CONF"] = given
"""
"""Loads OpenSSL with the toolchain's settings: they may name libraries to load, and the container's are the agent's."""
_DROPPED = (
    "test", "idlelib", "turtledemo", "tkinter", "lib2to3", "site-packages", "dist-packages", "config-*", "__pycache__",
    "_tkinter*.so", "_test*.so", "*.a",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class SourcePython:
    """A Python on this machine from which the toolchain's is copied."""

    executable: Path
    version: str
    """Full version, such as 3.13.0."""
    standard_library: Path

    @property
    def short(self) -> str:
        return ".".join(self.version.split(".")[:2])

    @property
    def programs(self) -> list[Path]:
        """The executable and the modules that it loads."""
        modules = (self.standard_library / "lib-dynload").glob("*.so")
        return [self.executable, *(each for each in modules if not each.match("_tkinter*"))]


def inspect_python(executable: Path) -> SourcePython:
    """Describe a Python. Raises UserError if it is not a CPython."""
    code = (
        "import json, os, platform, sys; print(json.dumps([sys.implementation.name, platform.python_version(), "
        "os.path.realpath(sys.executable), os.path.dirname(os.__file__)]))"
    )
    kind, version, real, library = json.loads(
        run_program((str(executable), "-I", "-S", "-c", code), f"look at {executable}")
    )
    if kind != "cpython":
        raise UserError(f"{executable} is a {kind}, and the toolchain needs CPython: name another with --python")
    return SourcePython(Path(real), version, Path(library))


def install_python(source: SourcePython, machine: str, patchelf: Path, verify: Path) -> str:
    """Copy ``source`` into ``verify/pythons`` as uv would have installed it. Returns uv's name for it."""
    name = f"cpython-{source.version}-linux-{machine}-gnu"
    home = verify / "pythons" / name
    (home / "bin").mkdir(parents=True)
    program = home / "bin" / f"python{source.short}"
    shutil.copy(source.executable, program)
    for alias in ("python", "python3"):
        (home / "bin" / alias).symlink_to(program.name)
    modules = home / "lib" / f"python{source.short}"
    copy_standard_library(source, modules)
    (modules / "site-packages").mkdir(exist_ok=True)
    (home / "lib" / f"python{source.short}" / "EXTERNALLY-MANAGED").write_text(
        "[externally-managed]\nError=This Python belongs to the sandbox's toolchain and is read-only.\n"
    )
    for module in modules.glob("lib-dynload/*.so"):
        remove_rpath(module, patchelf)
    relocate_program(program, patchelf)
    (modules / "sitecustomize.py").write_text(SITE_CUSTOMIZE)
    (verify / "openssl.cnf").touch()
    compile_modules(source, modules, f"{PYTHONS}/{name}/lib/python{source.short}")
    return name


def copy_standard_library(source: SourcePython, folder: Path) -> None:
    """Copy the standard library of ``source`` to a new folder, without tests, graphical parts and other packages."""
    shutil.copytree(source.standard_library, folder, symlinks=True, ignore=shutil.ignore_patterns(*_DROPPED))


def compile_modules(source: SourcePython, folder: Path, inside: str) -> None:
    """Compile the modules in ``folder``, which is the read-only ``inside`` in a container."""
    run_program(
        (str(source.executable), "-I", "-m", "compileall", "-q", "-s", str(folder), "-p", inside, str(folder)),
        f"compile the modules of {inside}",
    )

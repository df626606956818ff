"""A Python that runs in any image: copied with its loader and its libraries, to one fixed place.

The program names its loader by an absolute path in the kit and finds every library by a DT_RPATH there, so that the
image's libc (old, musl, or replaced by the agent) is never asked.  The loader and the libc themselves are closed
(:mod:`sandbox.kit.closed`).
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from protocol.errors import UserError
from sandbox.kit import closed
from sandbox.kit.phase import PYTHONS, VERIFY
from sandbox.provision import run

LIBRARIES = f"{VERIFY}/lib"
_LOADER = f"{LIBRARIES}/ld.so"
_LIBC = "libc.so.6"
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
"""OpenSSL's settings may name libraries to load; the container's are the agent's."""
_DROPPED = (
    "test", "idlelib", "turtledemo", "tkinter", "lib2to3", "site-packages", "dist-packages", "config-*", "__pycache__",
    "_tkinter*.so", "_test*.so", "*.a",
)  # fmt: skip
_LDD = re.compile(r"^\s*(?:\S+ => )?(/\S+) \(0x", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class SourcePython:
    """A Python on this machine that the kit's is copied from."""

    executable: Path
    version: str
    """Such as 3.13.0."""
    standard_library: Path

    @property
    def short(self) -> str:
        return ".".join(self.version.split(".")[:2])


def inspect(executable: Path) -> SourcePython:
    """Raises UserError for what is no Python."""
    code = (
        "import json, os, platform, sys; print(json.dumps([sys.implementation.name, platform.python_version(), "
        "os.path.realpath(sys.executable), os.path.dirname(os.__file__)]))"
    )
    kind, version, real, library = json.loads(run((str(executable), "-I", "-S", "-c", code), f"look at {executable}"))
    if kind != "cpython":
        raise UserError(f"{executable} is a {kind}, and the kit needs CPython: name another with --python")
    return SourcePython(Path(real), version, Path(library))


def install(source: SourcePython, machine: str, patchelf: Path, verify: Path) -> str:
    """Copy ``source`` into ``verify/pythons`` as uv would have installed it.  Returns uv's name for it."""
    name = f"cpython-{source.version}-linux-{machine}-gnu"
    home, libraries = verify / "pythons" / name, verify / "lib"
    (home / "bin").mkdir(parents=True)
    libraries.mkdir()
    program = home / "bin" / f"python{source.short}"
    shutil.copy(source.executable, program)
    for alias in ("python", "python3"):
        (home / "bin" / alias).symlink_to(program.name)
    modules = home / "lib" / f"python{source.short}"
    shutil.copytree(source.standard_library, modules, symlinks=True, ignore=shutil.ignore_patterns(*_DROPPED))
    (modules / "site-packages").mkdir(exist_ok=True)
    (home / "lib" / f"python{source.short}" / "EXTERNALLY-MANAGED").write_text(
        "[externally-managed]\nError=This Python belongs to the sandbox's verifier kit and is read-only.\n"
    )
    loader = run((str(patchelf), "--print-interpreter", str(program)), "read the Python's loader").strip()
    originals = [source.executable, *(source.standard_library / "lib-dynload").glob("*.so")]
    needed = _libraries(each for each in originals if not each.match("_tkinter*"))
    for library in needed | _loaded_later(needed):
        if library.name != Path(loader).name:
            shutil.copy(library, libraries / library.name)
    for module in (*modules.glob("lib-dynload/*.so"), *libraries.iterdir()):
        run((str(patchelf), "--remove-rpath", str(module)), f"make {module.name} relocatable")
    _rewrite(libraries / _LIBC, closed.LIBC)
    shutil.copy(loader, libraries / "ld.so")
    _rewrite(libraries / "ld.so", closed.LOADER)
    run(
        (str(patchelf), "--set-interpreter", _LOADER, "--force-rpath", "--set-rpath", LIBRARIES, str(program)),
        "make the kit's Python relocatable",
    )
    (modules / "sitecustomize.py").write_text(SITE_CUSTOMIZE)
    (verify / "openssl.cnf").touch()
    compile_all(source, modules, f"{PYTHONS}/{name}/lib/python{source.short}")
    return name


def compile_all(source: SourcePython, folder: Path, inside: str) -> None:
    """The modules under ``folder``, which is ``inside`` in a container; what is read-only there cannot be compiled
    later."""
    run(
        (str(source.executable), "-I", "-m", "compileall", "-q", "-s", str(folder), "-p", inside, str(folder)),
        f"compile the modules of {inside}",
    )


def _libraries(programs: Iterable[Path]) -> set[Path]:
    found: set[Path] = set()
    for program in programs:
        said = run(("ldd", str(program)), f"list the libraries of {program.name}")
        if "not found" in said:
            raise UserError(f"{program} lacks libraries on this machine:\n{said}")
        found.update(Path(path) for path in _LDD.findall(said))
    return found


def _loaded_later(needed: Iterable[Path]) -> set[Path]:
    """What glibc itself loads when a thread is ended early: from the container, if not from here."""
    beside = (each.with_name("libgcc_s.so.1") for each in needed if each.name == _LIBC)
    return {each for each in beside if each.exists()}


def _rewrite(library: Path, wanted: Sequence[closed.Place]) -> None:
    library.write_bytes(closed.closed(library.name, library.read_bytes(), *wanted))

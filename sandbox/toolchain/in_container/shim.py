"""The shims that carry out :mod:`~sandbox.toolchain.in_container.shim_rules`.

A copy runs in the container, on the toolchain's Python, from its read-only folder. Calls that the toolchain does not
answer go to the next program of that name on PATH, or to the real uv. If the phase has a network (``UV_OFFLINE`` is
unset), so do calls for packages that the toolchain lacks and, unless the tests run on the toolchain, all calls but
those for uv's installer. Without a network, what could only come from there is reported: ``needs-network …``. Unless
the tests run on the toolchain, a rewardkit of the image comes before the toolchain's. Created paths are recorded, to be
removed after the tests.
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NoReturn

from sandbox.toolchain.in_container import shim_rules
from sandbox.toolchain.in_container.layout import (
    BIN,
    CREATED_PATHS_FILE,
    ENVIRONMENT,
    PLAIN_SHIMS,
    SHIMS,
    SHIMS_ANSWER_VARIABLE,
    TOOL_FOLDERS,
)

_INSTALLER = f"""\
/.sbx/busybox mkdir -p "$HOME/.local/bin" && /.sbx/busybox rm -rf "$HOME/.local/bin/env" &&
echo 'export PATH="{SHIMS}:{BIN}:$PATH"' >"$HOME/.local/bin/env" || kill -9 0
"""
_ACTIVATE = """\
export VIRTUAL_ENV="{path}" PATH="{environment}/bin:$PATH"
deactivate() {{ PATH=${{PATH#{environment}/bin:}}; unset VIRTUAL_ENV; }}
"""
_NOT_FOUND, _NO_NETWORK, _NO_HOST = 2, 100, 6


def main(program: str, arguments: Sequence[str]) -> int:
    """Answer one call and return its exit code, unless another program replaces this process."""
    online = "UV_OFFLINE" not in os.environ
    match shim_rules.decide_shim_action(program, arguments):
        case shim_rules.ShimInstaller(into):
            with _kill_script_on_error():
                _note_created(Path(os.environ.get("HOME", "/"), ".local/bin/env"))
                _say(_INSTALLER, into)
            return 0
        case _ if SHIMS_ANSWER_VARIABLE not in os.environ and (online or _is_installed_rewardkit(program)):
            return _run_real_program(program, arguments)
        case shim_rules.ShimNothingToDo():
            return 0
        case shim_rules.ShimVenv(path):
            with _kill_script_on_error():
                _venv(Path(path))
            return 0
        case shim_rules.ShimRun(command):
            return _run(command)
        case shim_rules.ShimTests(tool, rest):
            return _run_tests(tool, rest)
        case shim_rules.ShimMissing(names) if not online:
            missing = [name for name in names if program not in shim_rules.APT_TOOLS or not _installed(name)]
            return _report_missing(program, *missing) if missing else 0
        case shim_rules.ShimMissing() | shim_rules.ShimPassThrough():
            return _run_real_program(program, arguments)


def _say(text: str, into: str) -> None:
    if into:
        _note_created(Path(into))
        Path(into).write_text(text)
    else:
        sys.stdout.write(text)


@contextmanager
def _kill_script_on_error() -> Generator[None]:
    """Kill the whole script on an error: otherwise it would continue with the agent's files."""
    try:
        yield
    except Exception as error:  # noqa: BLE001  any error
        sys.stderr.write(f"{type(error).__name__}: {error}\n")
        os.killpg(0, signal.SIGKILL)


def _note_created(path: Path) -> None:
    """Record a created path, to be removed after the tests, if there are any."""
    if Path(CREATED_PATHS_FILE).parent.is_dir():
        with Path(CREATED_PATHS_FILE).open("ab") as file:
            file.write(os.fsencode(path.absolute()) + b"\0")


def _venv(path: Path) -> None:
    """Create a virtual environment at ``path`` and replace any that exists: it was the agent's.

    ``path`` is as the script writes it. No folder in it is a link: a path through it and up again could lead elsewhere.
    """
    _note_created(path)
    if path.is_symlink() or (path.exists() and not path.is_dir()):
        path.unlink()
    elif (path / "pyvenv.cfg").exists() or (path / "bin").exists():
        shutil.rmtree(path)
    shutil.copytree(ENVIRONMENT, path, symlinks=True, ignore=shutil.ignore_patterns("site-packages"))
    packages = next(Path(ENVIRONMENT).glob("lib/*/site-packages"))
    own = path / packages.relative_to(ENVIRONMENT)
    own.mkdir()
    (own / "toolchain.pth").write_text(f"{packages}\n")
    (path / "bin" / "activate").write_text(_ACTIVATE.format(path=path.absolute(), environment=ENVIRONMENT))


def _run(command: Sequence[str]) -> NoReturn:
    """Run a command with the toolchain's Python first on PATH and the image's tools before the toolchain's."""
    os.environ.update(PATH=":".join((f"{ENVIRONMENT}/bin", *_image_folders(), *TOOL_FOLDERS)), VIRTUAL_ENV=ENVIRONMENT)
    _become(command[0], command)


def _run_tests(program: str, arguments: Sequence[str]) -> NoReturn:
    """Run the toolchain's pytest or rewardkit, whose tests find the image's programs first."""
    os.environ["PATH"] = ":".join((*_image_folders(), *TOOL_FOLDERS))
    _become(f"{ENVIRONMENT}/bin/{program}", (program, *arguments))


def _image_folders() -> list[str]:
    """Return the folders of PATH without the toolchain's own, but with its shims for what images have not."""
    own = (PLAIN_SHIMS, *TOOL_FOLDERS, f"{ENVIRONMENT}/bin")
    return [each for each in os.environ.get("PATH", "").split(":") if each not in own]


def _run_real_program(program: str, arguments: Sequence[str]) -> NoReturn:
    if program in shim_rules.UV_TOOLS:
        _become(f"{BIN}/{program}", (program, *arguments))
    if found := _find_next_program(program):
        _become(found, (program, *arguments))
    wanted = next((each for each in arguments if "://" in each), " ".join(arguments))
    sys.exit(_report_missing(program, wanted))


def _is_installed_rewardkit(program: str) -> bool:
    return program == shim_rules.REWARDKIT and _find_next_program(program) is not None


def _find_next_program(program: str) -> str | None:
    """Return the program of that name on PATH that is no shim."""
    folders = os.environ.get("PATH", "").split(":")
    return shutil.which(program, path=":".join(each for each in folders if each not in (SHIMS, PLAIN_SHIMS)))


def _report_missing(program: str, *what: str) -> int:
    sys.stderr.write(" ".join(("needs-network", program, *what)) + "\n")
    return _NO_HOST if program in shim_rules.FETCHERS else _NO_NETWORK


def _become(program: str, command: Sequence[str]) -> NoReturn:
    try:
        os.execvp(program, [*command])  # noqa: S606  this program's purpose: no shell is involved
    except OSError as error:
        sys.stderr.write(f"{command[0]}: {error.strerror}\n")
        sys.exit(_NOT_FOUND)


def _installed(package: str) -> bool:
    """Return whether the image's dpkg has the package installed."""
    try:
        status = Path("/var/lib/dpkg/status").read_text(errors="replace")
    except OSError:
        return False
    entries = (entry.splitlines() for entry in status.split("\n\n"))
    return any(f"Package: {package}" in entry and "Status: install ok installed" in entry for entry in entries)

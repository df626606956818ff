"""Copies this machine's GNU tools that read and print, so that they run in any image.  Blocking.

busybox differs in many cases (``diff`` of an unreadable file, ``tr -d '[:print:]'``, the exit code of ``timeout``), and
a test script's verdict may depend on it.
"""

from __future__ import annotations

import shutil
from pathlib import Path

from protocol.errors import UserError
from sandbox.docker.daemon import run_program
from sandbox.toolchain.glibc_sealing import seal_program
from sandbox.toolchain.in_container import pins
from sandbox.toolchain.in_container.layout import BASH, BUSYBOX, GNU, VERIFY
from sandbox.toolchain.relocation import relocate_program

_PAGER, _NONE = b"/usr/bin/pr\0", b"/.sbx//nopr\0"
"""Program that diff starts for pagination, which is the container's, and a path without a file that replaces it."""
_START = f"""#!{BASH} -p
user=
for ((at = 1; at <= $#; at++)); do
    case ${{!at}} in
        --) break ;;
        -S | -q | --start | --quiet) ;;
        -c | --chuid) ((at++)); user=${{!at}} ;;
        -x | -a | --exec | --startas) ((at++)) ;;
        *) user=; break ;;
    esac
done
[[ $user =~ ^[1-9][0-9]*: ]] || exec {BUSYBOX} start-stop-daemon "$@"
trap '' HUP INT TERM
(trap - HUP INT TERM; exec {BUSYBOX} start-stop-daemon "$@")
code=$?
{BUSYBOX} start-stop-daemon -S -q -c "$user" -p {VERIFY}/no.pid -x {BASH} -- -c 'kill -9 -1'
exit $code
"""
"""Wrapper of busybox's start-stop-daemon. When a program that it starts in the foreground ends, all other processes of
its user are killed, because they could read what the script compares its output with. With a pid file that does not
exist, the shell that kills them is always started."""


def original_tools() -> list[Path]:
    """Return this machine's tools. Raises UserError if one is missing."""
    return [_original(name, package) for package, names in pins.TOOLS.items() for name in names]


def tool_versions() -> list[str]:
    """Return the version of each package. Raises UserError if one is missing or not GNU's."""
    return [_version(names[0], package) for package, names in pins.TOOLS.items()]


def install_gnu_tools(folder: Path, patchelf: Path) -> None:
    """Install the tools; they load no messages and no program from the container."""
    folder.mkdir()
    for original in original_tools():
        copy = folder / original.name
        copy.write_bytes(seal_program(copy.name, original.read_bytes()).replace(_PAGER, _NONE))
        copy.chmod(0o755)
        relocate_program(copy, patchelf)
    aliases = {alias: f'#!{BUSYBOX} sh\nexec {GNU}/{command} "$@"\n' for alias, command in pins.TOOL_ALIASES.items()}
    for name, text in {**aliases, "start-stop-daemon": _START}.items():
        (folder / name).write_text(text)
        (folder / name).chmod(0o755)


def _version(name: str, package: str) -> str:
    version = run_program((str(_original(name, package)), "--version"), f"read the version of {name}").split("\n")[0]
    if "GNU" not in version:
        raise UserError(f"this machine's {name} is not GNU's ({version}): apt-get install {package}")
    return version


def _original(name: str, package: str) -> Path:
    found = shutil.which(name)
    if found is None:
        raise UserError(f"this machine has no {name}: apt-get install {package}")
    return Path(found)

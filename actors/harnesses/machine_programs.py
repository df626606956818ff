"""Programs of this machine that a harness uses, copied beside it.  Blocking."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

from sandbox.docker.daemon import ReportLine, apt_install
from sandbox.toolchain.build import copy_locales
from sandbox.toolchain.glibc_sealing import LOCALES_FOLDER

_TERMINFO = (Path("/lib/terminfo"), Path("/usr/share/terminfo"))


def copy_machine_programs(names: Sequence[str], folder: Path, say: ReportLine) -> None:
    """Copy programs to ``bin`` of ``folder``, with this machine's locale, which they find once they are portable, and
    its descriptions of terminals, ``terminfo`` there.

    One that is missing is installed.  Raises UserError, which says how to install it by hand.
    """
    if missing := [name for name in names if shutil.which(name) is None]:
        apt_install(missing, say)
    (folder / "bin").mkdir()
    for name in names:
        shutil.copy(shutil.which(name) or name, folder / "bin" / name)
    copy_locales(folder / LOCALES_FOLDER)
    if terminfo := next(filter(Path.is_dir, _TERMINFO), None):
        shutil.copytree(terminfo, folder / "terminfo")

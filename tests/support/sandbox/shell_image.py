"""An image of a shell and nothing else: bash, with its libraries, and busybox."""

from __future__ import annotations

import io
import re
import subprocess
import tarfile
from pathlib import Path

_APPLETS = ("sh", "cat", "ls", "mkdir", "rm", "ln", "cmp", "env", "ps", "sleep", "id", "uname")
_USERS = b"root:x:0:0:root:/root:/bin/bash\nagent:x:1000:1000:agent:/tmp:/bin/bash\n"


def libraries_of(program: str) -> list[str]:
    """Name the libraries and the loader that a program of this machine asks for."""
    listed = subprocess.run(["ldd", program], capture_output=True, text=True, check=True).stdout
    return re.findall(r"(/\S+) \(0x", listed)


def write_shell_image(archive: Path, busybox: Path) -> None:
    """Write the root file system that an engine imports: this machine's bash, and ``busybox``, a static one."""
    with tarfile.open(archive, "w") as tar:
        for path in ("/bin/bash", *libraries_of("/bin/bash")):
            tar.add(Path(path).resolve(), path)
        tar.add(busybox, "bin/busybox")
        for applet in _APPLETS:
            link = tarfile.TarInfo(f"bin/{applet}")
            link.type, link.linkname = tarfile.SYMTYPE, "busybox"
            tar.addfile(link)
        for folder, mode in (("tmp", 0o1777), ("root", 0o700), ("app", 0o777), ("etc", 0o755)):
            made = tarfile.TarInfo(folder)
            made.type, made.mode = tarfile.DIRTYPE, mode
            tar.addfile(made)
        passwd = tarfile.TarInfo("etc/passwd")
        passwd.size = len(_USERS)
        tar.addfile(passwd, io.BytesIO(_USERS))

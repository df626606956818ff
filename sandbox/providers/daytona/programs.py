"""Programs of an agent in a Daytona sandbox: a folder of longshore's home, at :data:`AGENT_PROGRAMS` as in other
sandboxes.

An image may have the folder, in :data:`LONGSHORE_FOLDER` under the name that it has in longshore's home; otherwise it
is packed once, here, and uploaded into each sandbox.
"""

from __future__ import annotations

import tarfile
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from protocol.errors import UserError
from sandbox.agent_programs import AgentPrograms
from sandbox.docker.container_spec import AGENT_PROGRAMS
from sandbox.errors import SandboxStartError
from sandbox.providers.daytona.handle import LONGSHORE_FOLDER, DaytonaHandle
from sandbox.toolchain.downloads import build_folder_once
from sandbox.toolchain.in_container.layout import BUSYBOX

_ARCHIVE = "programs.tar.gz"
_COMPRESSION = 4
_UNPACK_S = 600.0


class PackedPrograms(NamedTuple):
    """Programs, and the archive that is uploaded."""

    programs: AgentPrograms
    archive: Path
    disk_bytes: int
    """Size of the archive and of what is unpacked from it."""

    @property
    def folder(self) -> str:
        """The folder of the sandbox that has them."""
        return f"{LONGSHORE_FOLDER}/{PurePosixPath(self.programs.folder).name}"


def pack_programs(home: Path, programs: AgentPrograms) -> PackedPrograms:
    """Pack programs of longshore's ``home``, unless it has their archive.  Blocking.

    Raises UserError if they are not installed.
    """
    source = home / programs.folder
    if not source.is_dir():
        raise UserError(
            f"{source} does not exist, so Daytona's sandboxes cannot get it: run `longshore harness install NAME` on "
            "each machine with workers"
        )

    def fill(making: Path) -> None:
        with tarfile.open(making / _ARCHIVE, "w:gz", compresslevel=_COMPRESSION) as tar:
            tar.add(source, ".", filter=_as_root)

    archive = build_folder_once(home / "archives" / source.name, fill) / _ARCHIVE
    unpacked = sum(each.lstat().st_size for each in source.rglob("*"))
    return PackedPrograms(programs, archive, archive.stat().st_size + unpacked)


def _as_root(member: tarfile.TarInfo) -> tarfile.TarInfo:
    member.uid = member.gid = 0
    member.uname = member.gname = ""
    return member


async def install_programs(machine: DaytonaHandle, packed: PackedPrograms) -> None:
    """Put programs into a sandbox whose image does not have them.  Raises SandboxLost, SandboxStartError."""
    arguments = (packed.folder, AGENT_PROGRAMS, BUSYBOX)
    if not (await machine.call("link-programs", *arguments)).code:
        return
    staging = machine.staging_path()
    await machine.upload([(staging, str(packed.archive))])
    for verb in (("unpack", staging, packed.folder), ("link-programs", *arguments)):
        if code := (await machine.call(*verb, wait_s=_UNPACK_S)).code:
            raise SandboxStartError(
                f"the agent's programs cannot be unpacked in sandbox {machine.id}: code {code} (the image needs tar "
                "and gzip)"
            )

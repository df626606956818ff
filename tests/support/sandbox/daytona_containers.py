"""A fake Daytona's sandboxes: plain containers of this machine's engine, with nothing of ours in them."""

from __future__ import annotations

import asyncio
import io
import tarfile
from typing import Any

from sandbox.docker.engine import DockerEngine

LONGEST_S = 1800
_MARK = "/.in-the-container"


class DaytonaContainer:
    """Ends by itself, and is removed then."""

    def __init__(self, engine: DockerEngine, container: Any) -> None:
        self._engine, self._container = engine, container

    @classmethod
    async def start(
        cls, engine: DockerEngine, image: str, labels: dict[str, str], *, network: bool
    ) -> DaytonaContainer:
        container = await engine.docker.containers.create(
            {
                "Image": image,
                "Entrypoint": [],
                "Cmd": ["sleep", str(LONGEST_S)],
                "Labels": labels,
                "HostConfig": {"NetworkMode": "bridge" if network else "none", "AutoRemove": True},
            }
        )
        await container.start()
        started = cls(engine, container)
        await started.write_files({_MARK: b""})
        assert await started.run(f"test -e {_MARK}", "/") == (0, ""), (
            "an exec of this engine runs in the machine, as if dockerd was started by chroot: start it with pivot_root"
        )
        return started

    async def run(self, command: str, cwd: str) -> tuple[int, str]:
        made = await self._container.exec(cmd=["sh", "-c", command], workdir=cwd)
        output = bytearray()
        async with made.start(detach=False) as stream:
            while (message := await stream.read_out()) is not None:
                output += message.data
        return (await made.inspect())["ExitCode"], output.decode(errors="replace")

    async def write_files(self, files: dict[str, bytes]) -> None:
        packed = io.BytesIO()
        with tarfile.open(fileobj=packed, mode="w") as tar:
            for path, data in files.items():
                member = tarfile.TarInfo(path.lstrip("/"))
                member.size = len(data)
                tar.addfile(member, io.BytesIO(data))
        packed.seek(0)
        await self._container.put_archive("/", packed)

    async def read_file(self, path: str) -> bytes:
        tar = await self._container.get_archive(path)
        with tar:
            content = tar.extractfile(tar.getmembers()[0])
            assert content is not None
            return content.read()

    async def remove(self) -> None:
        await asyncio.shield(self._engine.remove(self._container.id))

"""If these fail, a monitor that is left open beside a long run takes more and more memory."""

from __future__ import annotations

import asyncio
import re
import sys
from asyncio.subprocess import PIPE
from pathlib import Path

import aiohttp

from launch.processes.background_tasks import stop_process
from tests.support.fakes.fake_run import write_fake_run

_ARENA_BYTES = 64 << 20
"""Address space of each of glibc's arenas but the first, at a multiple of it."""
_MAPPING = re.compile(r"(\w+)-(\w+) (\S+) ")


def _count_arenas(pid: int) -> int:
    """Return the number of arenas beside the first: a used part, and the reserved rest behind it."""
    found = map(_MAPPING.match, Path(f"/proc/{pid}/maps").read_text().splitlines())
    mappings = [(int(each[1], 16), int(each[2], 16), each[3]) for each in found if each]
    reserved = {start: end for start, end, access in mappings if access == "---p"}
    return sum(
        start % _ARENA_BYTES == 0 and reserved.get(end) == start + _ARENA_BYTES
        for start, end, access in mappings
        if access == "rw-p"
    )


async def test_all_threads_of_a_monitor_share_one_arena_of_the_allocator(tmp_path: Path) -> None:
    """An arena of its own keeps what its thread once took: in two hours 6 MiB, and more with more processors."""
    write_fake_run(tmp_path / "run", steps=4)
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "launch.monitor", str(tmp_path / "run")), stdout=PIPE
    )
    try:
        assert process.stdout
        url = (await process.stdout.readline()).decode().strip()
        async with aiohttp.ClientSession(url) as session:

            async def read(page: str) -> None:
                async with session.get(f"api/runs/-/{page}") as answer:
                    assert answer.status == 200
                    await answer.read()

            await asyncio.gather(*(read(page) for page in ("head", "state", "metrics", "trajectories", "groups") * 4))
        assert _count_arenas(process.pid) == 0
    finally:
        await stop_process(process, 10.0)

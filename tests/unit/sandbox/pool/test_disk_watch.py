"""If these fail, an agent fills the host's disk unseen, or every sandbox is measured every second."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandbox.docker.container_spec import ContainerSpec
from sandbox.pool import disk_watch
from sandbox.pool.disk_bound import DiskBound
from sandbox.pool.disk_watch import (
    MAX_MEASURE_INTERVAL_S,
    MIN_BYTES_PER_FILE,
    DiskWatch,
    MeasuredLayer,
    is_measurement_due,
    measure_disk_use,
)

sizes = st.integers(0, 1 << 40)


@given(used=sizes, grown=sizes, others=sizes, limit=sizes, free=sizes)
def test_no_layer_exceeds_its_limit_unmeasured_unless_space_is_freed(used, grown, others, limit, free):
    seen = MeasuredLayer("c", "", (Path("/"),), None, limit, used, free, 0.0)
    if used + grown > limit:
        assert is_measurement_due(seen, free - grown - others, 0.0)


def test_a_quiet_disk_is_measured_rarely():
    seen = MeasuredLayer("c", "", (Path("/"),), None, 100, 10, 1000, 0.0)
    assert not is_measurement_due(seen, 1000, MAX_MEASURE_INTERVAL_S)
    assert not is_measurement_due(seen, 5000, MAX_MEASURE_INTERVAL_S)
    assert is_measurement_due(seen, 1000, MAX_MEASURE_INTERVAL_S + 1)


def test_bytes_and_files_count_and_missing_folders_are_left_out(tmp_path: Path):
    """Otherwise an agent could make others copy or remove empty files without end."""
    large, many = tmp_path / "large", tmp_path / "many"
    for folder in (large, many):
        folder.mkdir()
    (large / "f").write_bytes(b"x" * (1 << 20))
    for number in range(300):
        (many / str(number)).touch()
    used = measure_disk_use([large, many, tmp_path / "gone"])
    assert used.keys() == {large, many}
    assert used[large] >= 1 << 20
    assert used[many] == 301 * MIN_BYTES_PER_FILE


class MeasuredSession:
    """A live session with a mounted file that no longer exists when it is measured."""

    alive = True
    spec = ContainerSpec("image", Path("/toolchain"), {})
    container = "c"

    def __init__(self, place: Path) -> None:
        self.engine, self._place, self.requested = self, place, asyncio.Event()

    async def inspect(self, _: str) -> dict[str, Any]:
        self._place.touch()
        files = {"HostnamePath": str(self._place), "HostsPath": "/proc/1/none", "ResolvConfPath": ""}
        return files | {"Id": "c", "Config": {"Labels": {}}, "State": {"Pid": 0}, "NetworkSettings": {"Networks": {}}}


async def test_a_missing_or_unreadable_folder_does_not_end_the_disk_watch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """If the watch ended, its pool and every session would end with it."""
    session, looks = MeasuredSession(tmp_path / "hostname"), 0

    def gone(path: Path) -> int:
        nonlocal looks
        looks += 1
        if looks > 3:
            session.requested.set()
        raise PermissionError if looks % 2 else FileNotFoundError

    monkeypatch.setattr(disk_watch, "free_bytes", gone)
    monkeypatch.setattr(disk_watch, "MEASURE_INTERVAL_S", 0.0)
    watch: Any = DiskWatch(lambda: [session], DiskBound.WATCH)
    async with asyncio.TaskGroup() as group:
        watching = group.create_task(watch.run())
        await session.requested.wait()
        assert not watching.done()
        watching.cancel()

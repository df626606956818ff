"""If these fail, a machine that loses its power, or a disk that turns read-only, loses a trajectory whose worker was
told that it is safe.

The journal is on a file system of its own in a file.  At some moment its process is stopped and the file is copied: the
copy has what had reached the device, and nothing of the page cache.  Mounted, it is what the machine would start with.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from receiver_process import open_journal

from protocol import codec
from protocol.journal import AppendOutcome, Journal
from protocol.journal.values import JournalError
from protocol.stream import ReceivedTrajectory, TrajectorySender
from tests.support.runs.trajectories import RUN, make_plan, make_trajectory

GROUPS, SAMPLES = 400, 4
TRAJECTORY_BYTES, BUDGET_BYTES = 8 << 10, 16 << 20
"""Small ones: the log goes into the database every 2 MiB, many times while all arrive."""
DISK_BYTES = 300 << 20
SOON_S = 300.0


def make_disk(folder: Path) -> Path:
    disk = folder / "disk"
    with disk.open("wb") as file:
        file.truncate(DISK_BYTES)
    subprocess.run(("mkfs.ext4", "-q", "-F", "-m", "0", "-J", "size=4", str(disk)), check=True)
    return disk


@contextlib.contextmanager
def mounted(disk: Path, at: Path) -> Iterator[Path]:
    """A disk's file system, whose kernel thread writes nothing by itself for an hour; skips where nobody may mount."""
    at.mkdir()
    mount = ("mount", "-t", "ext4", "-o", "loop,commit=3600,errors=remount-ro", str(disk), str(at))
    if os.geteuid() or subprocess.run(mount, check=False, capture_output=True).returncode:
        pytest.skip("this machine lets nobody mount a file")
    at.chmod(0o700)
    try:
        yield at
    finally:
        subprocess.run(("umount", str(at)), check=True)
        at.rmdir()


@contextlib.asynccontextmanager
async def receiver_on(folder: Path) -> AsyncIterator[tuple[asyncio.subprocess.Process, str]]:
    script = Path(__file__).with_name("receiver_process.py")
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, str(script), str(folder), "--groups", str(GROUPS)),
        *("--trajectory-bytes", str(TRAJECTORY_BYTES), "--budget-bytes", str(BUDGET_BYTES)),
        stdout=asyncio.subprocess.PIPE,
        env=environment,
    )
    assert process.stdout is not None
    try:
        yield process, (await process.stdout.readline()).decode().strip()
    finally:
        process.kill()
        await process.wait()


def copy_while_stopped(pid: int, disk: Path, copy: Path) -> None:
    """Copy the disk while every thread is stopped, those included that the kernel made wait for it until then."""
    os.kill(pid, signal.SIGSTOP)
    threads = [path / "stat" for path in Path(f"/proc/{pid}/task").iterdir()]
    while any(thread.read_text().rpartition(")")[2].split()[0] != "T" for thread in threads):
        time.sleep(0.001)
    subprocess.run(("cp", "--sparse=always", str(disk), str(copy)), check=True)
    os.kill(pid, signal.SIGCONT)


def open_small_journal(folder: Path) -> Journal:
    return open_journal(folder, TRAJECTORY_BYTES, BUDGET_BYTES)


def stored_in(folder: Path) -> set[str]:
    """The trajectories of a journal that opens and is whole."""
    open_small_journal(folder).close()
    with contextlib.closing(sqlite3.connect(folder / "buffer" / "journal.sqlite")) as database:
        assert database.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        return {name for (name,) in database.execute("SELECT trajectory FROM payloads")}


@pytest.mark.parametrize("cuts", [5, pytest.param(200, marks=pytest.mark.slow)])
async def test_a_power_cut_at_any_moment_loses_nothing_that_was_acknowledged(tmp_path: Path, cuts: int) -> None:
    disk, copy, moments = make_disk(tmp_path), tmp_path / "copy", random.Random(4)
    acknowledged: set[str] = set()

    async def send_group(sender: TrajectorySender, group: int) -> None:
        for sample in range(SAMPLES):
            trajectory = make_trajectory(group, sample, sampled=200, reward=float(sample))
            assert await sender.send(trajectory, SOON_S) is AppendOutcome.APPENDED
            acknowledged.add(trajectory.request.trajectory_id)

    async def send_all(sender: TrajectorySender, groups: range) -> None:
        for group in groups:
            await send_group(sender, group)

    lengths: list[int] = []
    with mounted(disk, tmp_path / "mounted") as folder:
        async with (
            receiver_on(folder) as (process, endpoint),
            TrajectorySender(endpoint, RUN, "a") as sender,
            asyncio.TaskGroup() as sending,
        ):
            halves = range(GROUPS // 2), range(GROUPS // 2, GROUPS)
            sends = [sending.create_task(send_all(sender, half)) for half in halves]
            for _ in range(cuts):
                await asyncio.sleep(moments.uniform(0.0, 0.02))
                safe = set(acknowledged)
                await asyncio.to_thread(copy_while_stopped, process.pid, disk, copy)
                with mounted(copy, tmp_path / "after") as after:
                    stored = stored_in(after)
                assert safe <= stored
                lengths.append(len(stored))
            for send in sends:
                send.cancel()
    assert len(set(lengths)) > cuts // 2, "the cuts must fall between appends"


def turn_read_only(folder: Path) -> None:
    """Make the kernel find an error in the file system, after which it writes nothing; skips where it cannot."""
    mounts = [line.split() for line in Path("/proc/mounts").read_text().splitlines()]
    device = next(Path(source).name for source, at, *_ in mounts if at == str(folder))
    trigger = Path("/sys/fs/ext4", device, "trigger_fs_error")
    if not trigger.exists():
        pytest.skip("this kernel finds no error on request")
    trigger.write_text("a test")


def test_a_disk_that_turns_read_only_is_said_and_keeps_what_was_acknowledged(tmp_path: Path) -> None:
    disk = make_disk(tmp_path)

    def append(journal: Journal, sample: int) -> AppendOutcome:
        frames = codec.encode_trajectory(make_trajectory(0, sample))
        received = ReceivedTrajectory(codec.inspect_frames(frames, max_bytes=1 << 20), frames, "a")
        return journal.append_batch([received.to_arrival()])[0][0]

    with mounted(disk, tmp_path / "mounted") as folder, contextlib.closing(open_small_journal(folder)) as journal:
        journal.open_group(make_plan(0), b"")
        assert append(journal, 0) is AppendOutcome.APPENDED
        turn_read_only(folder)
        for _ in range(2):
            with pytest.raises(JournalError, match=r"nothing was acknowledged\. The disk itself may be failing"):
                append(journal, 1)
    subprocess.run(("fsck.ext4", "-fy", str(disk)), check=False, capture_output=True)
    with mounted(disk, tmp_path / "mounted") as folder:
        assert stored_in(folder) == {"train-g000000-s00"}
        with contextlib.closing(open_small_journal(folder)) as journal:
            assert append(journal, 1) is AppendOutcome.APPENDED

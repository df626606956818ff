"""If these fail, an acknowledgement may outrun the disk: a power cut then loses what a worker was told is safe."""

from __future__ import annotations

import os
import re
import shutil
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
from receiver_process import open_journal

from protocol import codec
from protocol.journal import AppendOutcome, Journal, JournalSettings
from protocol.stream import ReceivedTrajectory, TrajectoryReceiver, TrajectorySender
from tests.support.runs.trajectories import RUN, make_plan, make_trajectory
from tests.support.stream_keys import RECEIVER_KEYS, SENDER_KEYS

SOON_S = 120.0
STRACE = shutil.which("strace")


async def test_an_acknowledged_trajectory_is_already_in_the_files_on_disk(tmp_path: Path) -> None:
    """A copy of database and log taken when the acknowledgement is seen is what a crash would leave."""
    journal = open_journal(tmp_path)
    journal.open_group(make_plan(0), b"")

    async def append(items: Sequence[ReceivedTrajectory]) -> Sequence[AppendOutcome]:
        return journal.append_batch([item.to_arrival() for item in items])[0]

    async with (
        TrajectoryReceiver(RUN, append, max_bytes=1 << 20, curve=RECEIVER_KEYS) as receiver,
        TrajectorySender(receiver.endpoint, RUN, "a", heartbeat_s=0.05, curve=SENDER_KEYS) as sender,
    ):
        for sample in range(4):
            assert await sender.send(make_trajectory(0, sample, reward=float(sample)), SOON_S) is AppendOutcome.APPENDED
            copy = tmp_path / f"copy-{sample}"
            copy.mkdir()
            for part in journal.path.parent.glob("journal.sqlite*"):
                if not part.name.endswith("-shm"):
                    shutil.copy(part, copy)
            with closing(sqlite3.connect(copy / "journal.sqlite")) as database:
                names = [name for (name,) in database.execute("SELECT trajectory FROM payloads ORDER BY rowid")]
            assert names == [f"train-g000000-s{each:02d}" for each in range(sample + 1)]
    journal.close()


@contextmanager
def traced_receiver(folder: Path, trace: Path) -> Iterator[str]:
    """A receiver process under strace; gives its endpoint.  Skips where nobody may trace a process."""
    script = Path(__file__).with_name("receiver_process.py")
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    command = [str(STRACE), "-f", "-y", "-s", "128", "-e", "trace=fdatasync,fsync,sendto,write", "-o", str(trace)]
    command += [sys.executable, str(script), str(folder)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment, process_group=0) as process:
        assert process.stdout is not None
        try:
            line = process.stdout.readline()
            if not line:
                pytest.skip("this machine lets nobody trace a process")
            yield line.strip()
        finally:
            os.killpg(process.pid, signal.SIGKILL)


@pytest.mark.skipif(STRACE is None, reason="strace is not installed: apt-get install strace")
async def test_the_log_is_synced_before_each_acknowledgement_leaves(tmp_path: Path) -> None:
    """The kernel sees an fdatasync of the log between two acknowledgements on the socket."""
    trace = tmp_path / "trace"
    with traced_receiver(tmp_path, trace) as endpoint:
        async with TrajectorySender(endpoint, RUN, "a") as sender:
            for sample in range(4):
                assert await sender.send(make_trajectory(0, sample), SOON_S) is AppendOutcome.APPENDED
    order = [
        "ack" if '[\\"ack\\"' in line else "sync"
        for line in trace.read_text().splitlines()
        if '[\\"ack\\"' in line or re.search(r"(fdatasync|fsync)\(\d+<[^>]*journal\.sqlite-wal>", line)
    ]
    assert order.count("ack") == 4
    before = [order[index - 1] for index, each in enumerate(order) if each == "ack" and index]
    assert before == ["sync"] * 4


@pytest.mark.parametrize("steps", [1, 30])
def test_the_log_stays_within_its_share_of_the_budget(tmp_path: Path, steps: int) -> None:
    """Ten times the budget goes through, forgotten so many steps at once; the write-ahead log never holds more than a
    quarter of the budget."""
    budget = 16 << 20
    settings = JournalSettings(
        run_id=RUN, max_trajectory_bytes=1 << 20, budget_bytes=budget, disk_floor_bytes=0, dynamic_sampling=True
    )
    journal = Journal(tmp_path / "journal.sqlite", settings)
    log = tmp_path / "journal.sqlite-wal"
    most = written = 0
    for group in range(90):
        journal.open_group(make_plan(group, 2), b"")

        for sample in range(2):
            trajectory = make_trajectory(group, sample, sampled=78_000, size=2, reward=float(sample))
            received = ReceivedTrajectory(
                codec.inspect_frames(frames := codec.encode_trajectory(trajectory), max_bytes=1 << 21), frames, "a"
            )
            journal.append_batch([received.to_arrival()])
            written += codec.payload_size(frames)
            most = max(most, log.stat().st_size)
        lease = journal.lease_batch(1)
        assert lease is not None
        journal.mark_trained(group + 1, lease.trajectory_ids, {})
        journal.commit_checkpoint(group + 1)
        if (group + 1) % steps == 0:
            journal.compact_payloads(group + 1)
            most = max(most, log.stat().st_size)
    journal.close()
    assert written > 10 * budget
    assert most <= budget // 4

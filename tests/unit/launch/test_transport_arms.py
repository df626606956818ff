"""If this fails, the measurement of the durable path takes what was only acknowledged for what lies on the disk."""

from __future__ import annotations

from pathlib import Path

from launch.bench.transport import arms
from launch.bench.transport.workload import GROUP_SIZE, RUN, number_of, numbered, plan_of, trajectory_of
from protocol import codec
from protocol.journal import Arrival, Journal, JournalSettings


def test_only_what_lies_in_the_journal_with_its_bytes_counts(tmp_path: Path) -> None:
    path = tmp_path / "journal.sqlite"
    settings = JournalSettings(
        run_id=RUN, max_trajectory_bytes=1 << 20, budget_bytes=1 << 30, disk_floor_bytes=0, dynamic_sampling=False
    )
    journal = Journal(path, settings)
    for group in (0, 1):
        journal.open_group(plan_of(group), b"")
    sent = list(numbered(trajectory_of(64), 2 * GROUP_SIZE))
    for trajectory in sent[:-1]:
        frames, ticket = codec.encode(trajectory), trajectory.ticket
        blob, digest = codec.pack(frames), codec.digest(frames)
        name, status = ticket.trajectory_id, trajectory.status
        journal.append([Arrival(name, ticket.group, ticket.sample, 1.0, status, digest, blob, 32)])
    journal.close()
    assert arms._stored(path) == {number_of(trajectory.ticket) for trajectory in sent[:-1]}
    assert {number_of(trajectory.ticket) for trajectory in sent} - arms._stored(path) == {2 * GROUP_SIZE - 1}

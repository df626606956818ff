"""A run's journal, made up as its run is."""

from __future__ import annotations

from pathlib import Path

from protocol import codec
from protocol.journal import Journal, JournalSettings, TrajectoryArrival
from protocol.journal.repair import JOURNAL_FILE
from tests.support.runs.trajectories import make_plan, make_trajectory


def write_journal(run_dir: Path, groups: int = 2) -> None:
    """Write the journal of a run that has ended: groups of four trajectories, of which the first was trained."""
    settings = JournalSettings(
        run_id=run_dir.name,
        max_trajectory_bytes=1 << 20,
        budget_bytes=1 << 30,
        disk_floor_bytes=0,
        dynamic_sampling=True,
    )
    (run_dir / JOURNAL_FILE).parent.mkdir(parents=True, exist_ok=True)
    journal = Journal(run_dir / JOURNAL_FILE, settings)
    for group in range(groups):
        journal.open_group(make_plan(group), b"cursor")
        for sample in range(4):
            made = make_trajectory(group, sample, reward=float(sample % 2), run_id=run_dir.name)
            frames = codec.encode_trajectory(made)
            summary = codec.inspect_frames(frames, max_bytes=1 << 20)
            arrival = TrajectoryArrival(
                *(summary.request, made.reward.total, summary.passed, summary.status),
                *(summary.digest, codec.pack_frames(frames), summary.sampled),
            )
            journal.append_batch([arrival])
    lease = journal.lease_batch(1)
    assert lease is not None
    journal.mark_trained(1, lease.trajectory_ids, {})
    journal.close()

"""Batches of which nothing is trained: all of it is too old, or its loss or gradient is not finite.

A non-finite batch is saved for inspection, and too many in a row end the run.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from actors.buffer.trajectory_buffer import TrajectoryBuffer
from actors.runtime.remote import Remote
from launch.training.state import TrainingState
from learner.messages import StepReport
from protocol.errors import UserError
from protocol.events import EventLog
from protocol.files.filesystem import build_folder
from protocol.journal import BatchLease

NONFINITE_FOLDER = "nonfinite"


def save_nonfinite_batch(run_dir: Path, step: int, names: Sequence[str], payload: Sequence[bytes]) -> Path:
    """Write each trajectory of a batch to a file in a folder of the attempted step and return the folder.

    :func:`protocol.codec.unpack_trajectory` reads a file.  A later batch of the same step gets a numbered folder."""
    before = len(list((run_dir / NONFINITE_FOLDER).glob(f"step-{step}*")))
    folder = run_dir / NONFINITE_FOLDER / (f"step-{step}-{before + 1}" if before else f"step-{step}")
    with build_folder(folder) as partial:
        for name, blob in zip(names, payload, strict=True):
            (partial / f"{name.replace('/', '-')}.trajectory").write_bytes(blob)
    return folder


@dataclass(slots=True, kw_only=True)
class SkippedBatches:
    state: TrainingState
    buffer: Remote[TrajectoryBuffer]
    events: EventLog
    _nonfinite_in_a_row: int = 0

    async def save_if_nonfinite(self, report: StepReport, lease: BatchLease) -> Path | None:
        """Save a batch with a non-finite update and return its folder; None if all updates were finite."""
        skipped = int(report.metrics.get("nonfinite_updates", 0))
        if not skipped:
            return None
        payload = await self.buffer.call(TrajectoryBuffer.read_payload, lease)
        folder = await asyncio.to_thread(
            save_nonfinite_batch, self.state.run_dir, report.step, lease.trajectory_ids, payload
        )
        self.events.emit("learner.nonfinite", step=report.step, updates=skipped, path=str(folder))
        return folder

    def record_trained(self) -> None:
        """Count a batch with an update."""
        self._nonfinite_in_a_row = 0

    def record_skipped(self, report: StepReport, lease: BatchLease, nonfinite_folder: Path | None) -> None:
        """Report a batch without one.  Raises UserError after too many non-finite ones in a row."""
        for reason, episodes in Counter(report.dropped.values()).items():
            self.events.emit("batch.skipped", groups=len(lease.groups), episodes=episodes, reason=reason.value)
        if nonfinite_folder is None:
            return
        self._nonfinite_in_a_row += 1
        if self._nonfinite_in_a_row >= self.state.config.learner.nonfinite_limit:
            raise UserError(
                f"loss or gradient was not finite in {self._nonfinite_in_a_row} batches in a row "
                "(learner.nonfinite_limit); the weights are those of the last finite step. Look at the trajectories in "
                f"{nonfinite_folder.parent} (protocol.codec.unpack_trajectory reads one) and at mismatch_max in "
                "metrics.jsonl, lower learner.lr, and resume"
            )

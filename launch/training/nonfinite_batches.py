"""Saves batches whose loss or gradient was not finite, and ends a run after too many in a row."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from protocol.errors import UserError
from protocol.files.filesystem import build_folder

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


class NonfiniteLimit:
    """Counts batches in a row without an update."""

    def __init__(self, limit: int) -> None:
        self._limit, self._in_a_row = limit, 0

    def record_finite(self) -> None:
        """Count a batch with an update."""
        self._in_a_row = 0

    def record_nonfinite(self, kept: Path) -> None:
        """Count a batch without one, saved in ``kept``.  Raises UserError at the limit."""
        self._in_a_row += 1
        if self._in_a_row >= self._limit:
            raise UserError(
                f"loss or gradient was not finite in {self._in_a_row} batches in a row (learner.nonfinite_limit); "
                f"the weights are those of the last finite step. Look at the trajectories in {kept.parent} "
                "(protocol.codec.loads reads one) and at mismatch_max in metrics.jsonl, lower learner.lr, and resume"
            )

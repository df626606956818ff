"""Batches whose loss or gradient was not finite: kept to be looked at, and no more in a row than a run bears."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from protocol.errors import UserError
from protocol.files.filesystem import build_folder

NONFINITE_FOLDER = "nonfinite"


def save_nonfinite_batch(run_dir: Path, step: int, names: Sequence[str], payload: Sequence[bytes]) -> Path:
    """Write each trajectory of a batch to a file, for :func:`protocol.codec.loads`, in a folder for the step that was
    to be taken; that of a later batch for the same step has a number behind it."""
    before = len(list((run_dir / NONFINITE_FOLDER).glob(f"step-{step}*")))
    folder = run_dir / NONFINITE_FOLDER / (f"step-{step}-{before + 1}" if before else f"step-{step}")
    with build_folder(folder) as filling:
        for name, blob in zip(names, payload, strict=True):
            (filling / f"{name.replace('/', '-')}.trajectory").write_bytes(blob)
    return folder


class NonfiniteLimit:
    """Counts batches in a row of which no update was made."""

    def __init__(self, limit: int) -> None:
        self._limit, self._row = limit, 0

    def record_finite(self) -> None:
        """An update was made."""
        self._row = 0

    def record_nonfinite(self, kept: Path) -> None:
        """None was.  Raises UserError at the limit."""
        self._row += 1
        if self._row >= self._limit:
            raise UserError(
                f"loss or gradient was not finite in {self._row} batches in a row, which is learner.nonfinite_limit; "
                f"the weights are those of the last finite step. Look at the trajectories in {kept.parent} "
                "(protocol.codec.loads reads one) and at mismatch_max in metrics.jsonl, lower learner.lr, and resume"
            )

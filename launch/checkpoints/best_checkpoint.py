"""Exports the best checkpoint of a run: the one with the highest score on held-out tasks, the later one of equals.

Only steps that were evaluated and have a checkpoint count.  The weights are exported after training under their
version, so that a run that is resumed after its end exports nothing twice; the export of an earlier best is removed.
"""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Concatenate, ParamSpec, Protocol, TypeVar

from launch.checkpoints.store import Checkpoint, CheckpointStore, require_intact
from learner.rank import LearnerRank
from protocol.errors import InfraError, UserError
from protocol.events import EventLog
from protocol.weights import NO_VERSION, WeightVersion

T = TypeVar("T")
P = ParamSpec("P")

_FOLDER = "best"


class ExportLearner(Protocol):
    """The part of :class:`launch.training.learner_client.LearnerClient` that an export calls."""

    async def call(self, method: Callable[Concatenate[LearnerRank, P], T], *args: P.args, **kwargs: P.kwargs) -> T: ...
    async def offload(self) -> None: ...


@dataclass(frozen=True, slots=True)
class BestCheckpoint:
    step: int
    pass_at_1: float
    """pass@1 over all held-out tasks."""
    checkpoint: Path
    model: Path | None
    """Folder with the weights, which ``--model`` takes; None if it could not be written."""


async def export_best_checkpoint(
    run_dir: Path,
    checkpoints: CheckpointStore,
    learner: ExportLearner,
    events: EventLog,
) -> BestCheckpoint | None:
    """Export the best checkpoint and return it; None if no checkpoint has a score.  A failure is an alert.  Only after
    training: ``learner`` holds the exported weights afterwards."""
    found = await asyncio.to_thread(checkpoints.best_scored)
    if found is None:
        text = "checkpoint.keep_best: no evaluated step has a checkpoint, so there is no best one"
        events.emit("alert.raised", name="best_checkpoint", text=text)
        return None
    checkpoint, score = found
    step, model = checkpoint.manifest.step, run_dir / _FOLDER / f"v{checkpoint.manifest.version}"
    try:
        if not model.exists():
            await _export(checkpoint, learner, model)
    except (UserError, InfraError, OSError) as error:
        why = " ".join(str(error).split())
        text = f"the best checkpoint, {checkpoint.path}, could not be exported: {why}"
        events.emit("alert.raised", name="best_checkpoint", text=text)
        return BestCheckpoint(step, score, checkpoint.path, None)
    await asyncio.to_thread(_remove_other_exports, model)
    events.emit("best_checkpoint.exported", step=step, pass_at_1=round(score, 4), path=str(model))
    return BestCheckpoint(step, score, checkpoint.path, model)


async def _export(checkpoint: Checkpoint, learner: ExportLearner, folder: Path) -> None:
    """Write the weights of ``checkpoint`` as a Hugging Face folder, with adapters merged.  Raises UserError, InfraError
    and OSError."""
    manifest = checkpoint.manifest
    await asyncio.to_thread(require_intact, checkpoint)
    await learner.call(LearnerRank.load, str(checkpoint.learner))
    version = WeightVersion(manifest.version)
    await learner.call(LearnerRank.publish, version, manifest.step, NO_VERSION, str(folder))
    await learner.offload()


def _remove_other_exports(folder: Path) -> None:
    for other in folder.parent.iterdir():
        if other != folder:
            shutil.rmtree(other, ignore_errors=True)

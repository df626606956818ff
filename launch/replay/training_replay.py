"""Repeats a run's training on its recorded trajectories and compares the weights.

The replay starts from the oldest kept checkpoint, takes the same optimizer steps on the same trajectories in the same
order, and compares the weights with those of the newest checkpoint, bit by bit.  With the settings of the start that
took each step they are equal, on the same kind of machine and number of threads; with another clip range they differ
wherever a token was clipped.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path
from tempfile import TemporaryDirectory

from actors.engines.weights.adapter_files import ADAPTER_CONFIG_FILE as ADAPTER_CONFIG
from launch.actor_group.learner_group import learner_spec
from launch.checkpoints.store import Checkpoint, CheckpointStore, LedgerLine, require_intact
from launch.config import resolve
from launch.run_records.config_changes import read_changes
from launch.run_records.retunable_keys import LEARNING_RATE_KEY
from launch.run_records.stored_config import config_tables, load_stored_config
from launch.settings.checkpoint import RetentionSettings
from launch.training.recovery import reference_folder
from learner.rank import LearnerRank
from protocol.errors import UserError
from protocol.run_directory.layout import CONFIG_FILE, NoSuchRunError, start_folder
from protocol.run_directory.trajectory_export import (
    TRAJECTORIES_FOLDER,
    ExportIndexEntry,
    read_export_index,
    read_exported_blob,
)
from protocol.weights import WeightVersion, version_start_number


@dataclass(frozen=True, slots=True)
class TrainingReplay:
    """The result of a training replay."""

    steps: tuple[int, ...]
    digest: str
    """Digest of the weights after the replay."""
    recorded: str
    """Digest of the newest checkpoint's weights."""

    @property
    def equal(self) -> bool:
        return self.digest == self.recorded


def replay_training(run_dir: Path, overrides: Sequence[str] = ()) -> TrainingReplay:
    """Repeat the training on one rank.  Raises UserError if there is no such run, if it has fewer than two checkpoints,
    or if it was trained on several ranks."""
    if not (run_dir / CONFIG_FILE).is_file():
        raise NoSuchRunError(run_dir)
    found = CheckpointStore(run_dir, RetentionSettings(keep=1)).list_checkpoints()
    if len(found) < 2:
        raise UserError(
            f"{run_dir} has {'one checkpoint' if found else 'no checkpoint'} and a replay needs two: run with a "
            "smaller checkpoint.every_steps"
        )
    first, last = found[0], found[-1]
    for used in (first, last):
        require_intact(used)
    model = _model_of(first, run_dir)

    changes = _lr_changes(run_dir)

    def rank_of(start: int, state: Path) -> LearnerRank:
        stored = load_stored_config(start_folder(run_dir, start))
        config = resolve(config_tables(stored), overrides, source=f"start {start} of run {run_dir.name}")
        if config.learner.ranks > 1:
            raise UserError(
                f"{run_dir} was trained on {config.learner.ranks} ranks and a replay uses one, which sums in another "
                "order: replay a run with learner.ranks = 1"
            )
        rank = LearnerRank(replace(learner_spec(config, model), lr_changes=changes.get(start, ())))
        rank.setup()
        rank.load(str(state))
        if config.kl.coefficient:
            rank.freeze_reference(str(reference_folder(config.kl, run_dir)), False)
        return rank

    with closing(rank_of(last.manifest.start_number, last.learner)) as rank:
        recorded = rank.weights_digest()
    lines = [line for line in last.ledger() if line.step > first.manifest.step]
    exported = {entry.trajectory: entry for entry in read_export_index(run_dir)}
    digest, state = "", first.learner
    with TemporaryDirectory() as temporary:
        for start, steps in groupby(lines, lambda line: version_start_number(line.version)):
            with closing(rank_of(start, state)) as rank:
                for line in steps:
                    rank.step(
                        line.step, read_step_payload(run_dir, exported, line), last.lineage, WeightVersion(line.version)
                    )
                digest, state = rank.weights_digest(), Path(temporary) / str(start)
                rank.save(str(state))
    return TrainingReplay(tuple(line.step for line in lines), digest, recorded)


def _lr_changes(run_dir: Path) -> dict[int, tuple[tuple[int, float], ...]]:
    """Return start → (first step, learning rate) of each change of the learning rate during the run."""
    found: dict[int, tuple[tuple[int, float], ...]] = {}
    for change in read_changes(run_dir):
        if change.key == LEARNING_RATE_KEY and isinstance(change.after, int | float):
            found[change.start_number] = (*found.get(change.start_number, ()), (change.first_step, float(change.after)))
    return found


def read_step_payload(run_dir: Path, exported: Mapping[str, ExportIndexEntry], line: LedgerLine) -> list[bytes]:
    """Return the step's trajectories in the learner's order: by group and sample."""
    names = (*line.trained, *line.dropped)
    if missing := [name for name in names if name not in exported]:
        raise UserError(
            f"{run_dir / TRAJECTORIES_FOLDER} lacks {len(missing)} trajectories of step {line.step}, among them "
            f"{missing[0]}: they could not be exported, for example on a full disk, so this run cannot be replayed"
        )
    entries = sorted((exported[name] for name in names), key=lambda entry: (entry.group, entry.sample))
    return [read_exported_blob(run_dir, entry) for entry in entries]


def _model_of(checkpoint: Checkpoint, run_dir: Path) -> Path:
    """Return a folder with the model's configuration: weights of the run, or the base model of its adapters."""
    weights = run_dir / "weights"
    if folders := sorted(weights.glob("v*/config.json")):
        return folders[-1].parent
    if adapters := sorted(weights.glob(f"v*/{ADAPTER_CONFIG}")):
        return Path(json.loads(adapters[-1].read_bytes())["base_model_name_or_path"])
    raise UserError(f"{run_dir} has no weights folder, so {checkpoint.path} cannot be loaded")

"""Reads what a run has left behind, without the journal, checkpoint store and scheduler that are under test.

It uses SQLite, JSON lines and checkpoint files.  Only blobs are read by :mod:`protocol.codec`, and the export by
:mod:`protocol.run_directory.trajectory_export`, for the versions of tokens; what is missing there counts against the
run.
"""

from __future__ import annotations

import hashlib
import sqlite3
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import orjson

from launch.run.event_counts import count_missing_events
from protocol.codec import CodecError, unpack_trajectory
from protocol.groups import GroupOutcome
from protocol.run_directory.file_tail import read_lines
from protocol.run_directory.layout import LINEAGE_FILE
from protocol.run_directory.run_tail import read_events
from protocol.run_directory.trajectory_export import read_export_index, read_exported_trajectory
from protocol.trajectory import is_training_trajectory, make_trajectory_id

_USABLE = {GroupOutcome.OPEN, GroupOutcome.READY}

JsonLine: TypeAlias = dict[str, Any]
"""One object of a JSON-lines file."""


@dataclass(frozen=True, slots=True)
class JournalRow:
    """The journal's row of a trajectory."""

    state: str
    step: int | None
    reason: str | None
    stored: bool
    """Whether its payload is stored and holds that trajectory."""
    usable: bool = True
    """Whether its group is open or ready, and has not been used while this trajectory is held."""


@dataclass(frozen=True, slots=True)
class LedgerStep:
    """A line of a checkpoint's ledger."""

    step: int
    version: int
    """Version from which the step started."""
    trained: tuple[str, ...]
    dropped: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class RunEvidence:
    acks: Sequence[tuple[str, str]]
    """(trajectory, outcome) of every acknowledgement, as workers received it."""
    rows: Mapping[str, JournalRow]
    superseded: Mapping[str, int]
    """Trajectory → number of other trajectories of the same sample that the journal superseded."""
    ledgers: Sequence[Sequence[LedgerStep]]
    """Ledgers of the kept checkpoints, oldest first."""
    checkpoint_step: int
    """Step of the last checkpoint; a resume undoes later steps in the journal."""
    lineage: Mapping[int, tuple[int, int]]
    """Version → (step, parent)."""
    sampled: Mapping[str, Mapping[int, int]]
    """Exported trajectory → version → number of tokens that it sampled."""
    hashes: Mapping[int, set[str]]
    """Version → all digests in its manifest, in load events and of its files."""
    opened: Mapping[int, set[str]]
    """Group → its tasks according to all processes."""
    wasted: Sequence[int]
    """Groups that closed with missing members, oldest first; their tasks come once more."""


def read_evidence(run_dir: Path) -> RunEvidence:
    """Read the evidence.  Raises OSError or ValueError if there is too little: no journal, no checkpoint, or missing
    events, of which one may be an acknowledgement.
    """
    events = require_complete_events(read_events(run_dir))
    with closing(sqlite3.connect(run_dir / "buffer" / "journal.sqlite")) as journal:
        rows = {
            str(name): JournalRow(
                state,
                step,
                reason,
                stored=_holds_trajectory(blob, name),
                usable=outcome in _USABLE and not (used and state == "buffered"),
            )
            for name, state, step, reason, blob, outcome, used in journal.execute(
                "SELECT trajectory, state, step, reason, blob, outcome, used "
                "FROM trajectories JOIN groups ON id = group_id LEFT JOIN payloads USING (trajectory)"
            )
        }
        superseded = Counter(
            make_trajectory_id(group, sample)
            for group, sample in journal.execute("SELECT group_id, sample FROM superseded_trajectories")
        )
        groups = [
            (int(group), str(task), outcome == "too_few_members", seq)
            for group, task, outcome, seq in journal.execute("SELECT id, task, outcome, closed_seq FROM groups")
        ]
    checkpoints = sorted(
        path.parent
        for path in (run_dir / "checkpoints").glob("step-*/manifest.json")
        if path.parent.name.removeprefix("step-").isdigit()
    )
    manifest: JsonLine = orjson.loads((checkpoints[-1] / "manifest.json").read_bytes()) if checkpoints else {}
    if not manifest:
        raise ValueError(f"{run_dir} has no checkpoint")
    return RunEvidence(
        acks=[
            (str(event["trajectory"]), str(event["outcome"]))
            for event in events
            if event["kind"] == "trajectory.acknowledged" and str(event["writer"]).startswith("worker-")
        ],
        rows=rows,
        superseded=superseded,
        ledgers=[_ledger(path) for path in checkpoints],
        checkpoint_step=int(manifest["step"]),
        lineage=_lineage(run_dir, manifest),
        sampled=_sampled(run_dir),
        hashes=_version_digests(run_dir, events),
        opened=_opened_groups(events, groups),
        wasted=[group for _, group in sorted((seq, group) for group, _, short, seq in groups if short)],
    )


def require_complete_events(events: Iterable[JsonLine]) -> list[JsonLine]:
    """Return the events.  Raises ValueError if a writer's sequence numbers have a gap."""
    found: list[JsonLine] = []
    last: dict[str, int] = {}
    for event in events:
        writer, seq = str(event["writer"]), int(event["seq"])
        if missing := count_missing_events(last.get(writer, -1), seq):
            raise ValueError(f"of the events of {writer}, {missing} before its number {seq} are missing")
        last[writer] = seq
        found.append(event)
    return found


def _holds_trajectory(blob: bytes | None, name: str) -> bool:
    try:
        return blob is not None and unpack_trajectory(blob).request.trajectory_id == name
    except CodecError:
        return False


def _ledger(checkpoint: Path) -> list[LedgerStep]:
    lines = map(orjson.loads, read_lines(checkpoint / "ledger.jsonl"))
    return [LedgerStep(line["step"], line["version"], tuple(line["trained"]), line["dropped"]) for line in lines]


def _lineage(run_dir: Path, manifest: JsonLine) -> dict[int, tuple[int, int]]:
    lines = map(orjson.loads, read_lines(run_dir / LINEAGE_FILE))
    found = {int(line["version"]): (int(line["step"]), int(line["parent"])) for line in lines}
    return found | {version: (step, parent) for version, step, parent in manifest["lineage"]}


def _sampled(run_dir: Path) -> dict[str, dict[int, int]]:
    found: dict[str, dict[int, int]] = {}
    for entry in read_export_index(run_dir):
        counts = found.setdefault(entry.trajectory, {})
        for segment in read_exported_trajectory(run_dir, entry).segments:
            versions, tokens = np.unique(segment.versions[segment.loss_mask == 1], return_counts=True)
            for version, count in zip(versions.tolist(), tokens.tolist(), strict=True):
                counts[version] = counts.get(version, 0) + count
    return found


def _version_digests(run_dir: Path, events: Sequence[JsonLine]) -> dict[int, set[str]]:
    """Return version → digests in manifests, in load events and of the files."""
    found: dict[int, set[str]] = {}
    for event in events:
        if "sha256" in event:
            found.setdefault(int(event["version"]), set()).add(str(event["sha256"]))
    for folder in (run_dir / "weights").glob("v*"):
        found.setdefault(int(folder.name[1:]), set()).add(weights_digest(folder))
    return found


def weights_digest(folder: Path) -> str:
    """Return the SHA-256 of the weights in a folder, file by file."""
    digest = hashlib.sha256()
    for file in sorted(folder.glob("*.safetensors")):
        digest.update(file.read_bytes())
    return digest.hexdigest()


def _opened_groups(
    events: Sequence[JsonLine], groups: Sequence[tuple[int, str, bool, int | None]]
) -> dict[int, set[str]]:
    """Return group → tasks, from the events of buffer, scheduler and workers, any of which may have died before it
    wrote them; the journal counts only for groups without events.
    """
    found: dict[int, set[str]] = {}
    for event in events:
        named = event["kind"] in ("group.opened", "group.admitted", "group.closed", "episode.started")
        if named and ("trajectory" not in event or is_training_trajectory(str(event["trajectory"]))):
            found.setdefault(int(event["group"]), set()).add(str(event["task"]))
    for group, task, _, _ in groups:
        found.setdefault(group, {task})
    return found

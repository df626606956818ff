"""What a run has left behind, read without journal, checkpoint store and conductor, which are on trial: SQLite alone,
JSON lines, checkpoints as files.

Bytes are read by :mod:`protocol.codec`, and the export by :mod:`protocol.export`: what is judged of it is its tokens'
versions; what is missing from it counts against the run.
"""

from __future__ import annotations

import hashlib
import json
import sqlite3
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from launch.summary import missing_between, read_events
from protocol.codec import CodecError, loads
from protocol.export import read_exported, read_index
from protocol.groups import GroupOutcome
from protocol.trajectory import is_training, trajectory_id

_USABLE = {GroupOutcome.OPEN, GroupOutcome.READY}

Line: TypeAlias = dict[str, Any]
"""One object of a JSON file."""


@dataclass(frozen=True, slots=True)
class Row:
    """What the journal says of a trajectory."""

    state: str
    step: int | None
    reason: str | None
    stored: bool
    """Its payload is there, and is that trajectory."""
    usable: bool = True
    """Its group is open or ready, and has not been used where this one is held."""


@dataclass(frozen=True, slots=True)
class Step:
    """A line of a checkpoint's ledger."""

    step: int
    version: int
    """The one that the step started from."""
    trained: tuple[str, ...]
    dropped: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Evidence:
    acks: Sequence[tuple[str, str]]
    """(trajectory, outcome) as workers were told, each time."""
    rows: Mapping[str, Row]
    superseded: Mapping[str, int]
    """Trajectory → how many others of the same sample the journal took note of."""
    ledgers: Sequence[Sequence[Step]]
    """Of each checkpoint that is kept, oldest first."""
    checkpoint_step: int
    """Of the last one: what the journal says of later steps is undone by a resume."""
    lineage: Mapping[int, tuple[int, int]]
    """Version → (step, parent)."""
    sampled: Mapping[str, Mapping[int, int]]
    """Exported trajectory → version → tokens that it sampled."""
    hashes: Mapping[int, set[str]]
    """Version → every digest that was promised, loaded or left for it."""
    opened: Mapping[int, set[str]]
    """Group → its tasks by all who named one."""
    wasted: Sequence[int]
    """Groups that closed short of members, oldest first: their tasks come once more."""


def read_evidence(run_dir: Path) -> Evidence:
    """Raises OSError or ValueError where the run has left too little to judge: no journal, no checkpoint, or events
    that a process could not write, of which one may be an acknowledgement."""
    events = whole(read_events(run_dir))
    with closing(sqlite3.connect(run_dir / "buffer" / "journal.sqlite")) as journal:
        rows = {
            str(name): Row(
                state,
                step,
                reason,
                stored=_is_that(blob, name),
                usable=outcome in _USABLE and not (spent and state == "held"),
            )
            for name, state, step, reason, blob, outcome, spent in journal.execute(
                "SELECT trajectory, state, step, reason, blob, outcome, spent "
                "FROM rows JOIN groups ON id = grp LEFT JOIN payloads USING (trajectory)"
            )
        }
        superseded = Counter(
            trajectory_id(group, sample) for group, sample in journal.execute("SELECT grp, sample FROM superseded")
        )
        groups = [
            (int(group), str(task), outcome == "infra_short", seq)
            for group, task, outcome, seq in journal.execute("SELECT id, task, outcome, closed_seq FROM groups")
        ]
    checkpoints = sorted(
        path.parent
        for path in (run_dir / "checkpoints").glob("step-*/manifest.json")
        if path.parent.name.removeprefix("step-").isdigit()
    )
    manifest: Line = json.loads((checkpoints[-1] / "manifest.json").read_text()) if checkpoints else {}
    if not manifest:
        raise ValueError(f"{run_dir} has no checkpoint")
    return Evidence(
        acks=[
            (str(event["trajectory"]), str(event["outcome"]))
            for event in events
            if event["kind"] == "trajectory.acked" and str(event["writer"]).startswith("worker-")
        ],
        rows=rows,
        superseded=superseded,
        ledgers=[_ledger(path) for path in checkpoints],
        checkpoint_step=int(manifest["step"]),
        lineage=_lineage(run_dir, manifest),
        sampled=_sampled(run_dir),
        hashes=_hashes(run_dir, events),
        opened=_opened(events, groups),
        wasted=[group for _, group in sorted((seq, group) for group, _, short, seq in groups if short)],
    )


def whole(events: Iterable[Line]) -> list[Line]:
    """Raises ValueError where a writer's numbers have a hole."""
    found: list[Line] = []
    last: dict[str, int] = {}
    for event in events:
        writer, seq = str(event["writer"]), int(event["seq"])
        if missing := missing_between(last.get(writer, -1), seq):
            raise ValueError(f"of the events of {writer}, {missing} before its number {seq} are missing")
        last[writer] = seq
        found.append(event)
    return found


def _is_that(blob: bytes | None, name: str) -> bool:
    try:
        return blob is not None and loads(blob).ticket.trajectory_id == name
    except CodecError:
        return False


def _ledger(checkpoint: Path) -> list[Step]:
    lines = [json.loads(line) for line in (checkpoint / "ledger.jsonl").read_text().splitlines()]
    return [Step(line["step"], line["version"], tuple(line["trained"]), line["dropped"]) for line in lines]


def _lineage(run_dir: Path, manifest: Line) -> dict[int, tuple[int, int]]:
    lines = [json.loads(line) for line in (run_dir / "lineage.jsonl").read_text().splitlines()]
    found = {int(line["version"]): (int(line["step"]), int(line["parent"])) for line in lines}
    return found | {version: (step, parent) for version, step, parent in manifest["lineage"]}


def _sampled(run_dir: Path) -> dict[str, dict[int, int]]:
    found: dict[str, dict[int, int]] = {}
    for entry in read_index(run_dir):
        counts = found.setdefault(entry.trajectory, {})
        for segment in read_exported(run_dir, entry).segments:
            versions, tokens = np.unique(segment.versions[segment.loss_mask == 1], return_counts=True)
            for version, count in zip(versions.tolist(), tokens.tolist(), strict=True):
                counts[version] = counts.get(version, 0) + count
    return found


def _hashes(run_dir: Path, events: Sequence[Line]) -> dict[int, set[str]]:
    """What the driver promised, what the engine read, and what still lies there."""
    found: dict[int, set[str]] = {}
    for event in events:
        if "sha256" in event:
            found.setdefault(int(event["version"]), set()).add(str(event["sha256"]))
    for folder in (run_dir / "weights").glob("v*"):
        found.setdefault(int(folder.name[1:]), set()).add(weights_digest(folder))
    return found


def weights_digest(folder: Path) -> str:
    """SHA-256 of the weights in a folder, file by file."""
    digest = hashlib.sha256()
    for file in sorted(folder.glob("*.safetensors")):
        digest.update(file.read_bytes())
    return digest.hexdigest()


def _opened(events: Sequence[Line], groups: Sequence[tuple[int, str, bool, int | None]]) -> dict[int, set[str]]:
    """By the events of buffer, conductor and workers, of which each may have died before it could say so; the journal
    speaks only for groups of which nobody else has."""
    found: dict[int, set[str]] = {}
    for event in events:
        named = event["kind"] in ("group.opened", "group.admitted", "group.closed", "episode.started")
        if named and ("trajectory" not in event or is_training(str(event["trajectory"]))):
            found.setdefault(int(event["group"]), set()).add(str(event["task"]))
    for group, task, _, _ in groups:
        found.setdefault(group, {task})
    return found

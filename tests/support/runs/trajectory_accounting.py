"""The fate of every acknowledged trajectory of a finished run, read from the files themselves; only the export's blobs
are decoded by the code that encodes them."""

from __future__ import annotations

import json
import sqlite3
from collections import Counter
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import numpy as np

from protocol.run_directory.trajectory_export import read_export_index, read_exported_trajectory


def read_json(path: Path) -> Any:
    return json.loads(path.read_text())


def read_lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


class StoredJournal:
    """The journal of a run that has ended, read with SQLite alone."""

    def __init__(self, run_dir: Path) -> None:
        path = run_dir / "buffer" / "journal.sqlite"
        with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)) as database:
            self.rows = {
                name: (state, step, reason)
                for name, state, step, reason in database.execute(
                    "SELECT trajectory, state, step, reason FROM trajectories"
                )
            }
            self.acknowledged = int(dict(database.execute("SELECT key, value FROM meta"))["acknowledged"])
            (self.superseded,) = database.execute("SELECT count(*) FROM superseded_trajectories").fetchone()

    def count(self, state: str) -> int:
        return sum(row[0] == state for row in self.rows.values())

    def dropped(self) -> dict[str, int]:
        return dict(Counter(reason for state, _, reason in self.rows.values() if state == "dropped"))


def read_acknowledged(run_dir: Path) -> set[str]:
    """Return the trajectories whose storage was acknowledged to workers, by their own event files. The last line of a
    killed worker may be torn."""
    safe = set[str]()
    for path in (run_dir / "events").glob("worker-*.jsonl"):
        for line in path.read_text().splitlines():
            with suppress(ValueError):
                event = json.loads(line)
                if event["kind"] == "trajectory.acknowledged" and event["outcome"] in {"appended", "duplicate"}:
                    safe.add(event["trajectory"])
    return safe


def last_checkpoint(run_dir: Path) -> Path:
    return max(path for path in (run_dir / "checkpoints").glob("step-*") if (path / "manifest.json").exists())


def read_ledger(run_dir: Path) -> list[dict[str, Any]]:
    """One line for each optimizer step, from the last checkpoint."""
    return read_lines(last_checkpoint(run_dir) / "ledger.jsonl")


def assert_accounting_balances(run_dir: Path) -> StoredJournal:
    """Each trajectory that a worker was told is safe is in the journal; each acknowledged one is trained once, or
    dropped with a reason, or superseded, or still in the buffer; the last checkpoint's ledger says the same."""
    journal = StoredJournal(run_dir)
    assert read_acknowledged(run_dir) <= set(journal.rows), "an acknowledged trajectory is gone"
    assert journal.acknowledged == len(journal.rows) + journal.superseded
    assert journal.acknowledged == sum(map(journal.count, ("trained", "dropped", "buffered"))) + journal.superseded
    assert all(reason for state, _, reason in journal.rows.values() if state == "dropped")
    lines = read_ledger(run_dir)
    trained = [name for line in lines for name in line["trained"]]
    assert len(trained) == len(set(trained)), "a trajectory was trained twice"
    assert [line["step"] for line in lines] == list(range(1, len(lines) + 1))
    assert {(name, line["step"]) for line in lines for name in line["trained"]} == {
        (name, step) for name, (state, step, _) in journal.rows.items() if state == "trained"
    }
    for line in lines:
        for name, reason in line["dropped"].items():
            assert journal.rows[name] == ("dropped", line["step"], reason)
    exported = {entry.trajectory for entry in read_export_index(run_dir)}
    assert set(trained) <= exported, "a trained trajectory cannot be looked at"
    return journal


class CheckpointLineage:
    """Versions and their steps from a checkpoint's manifest."""

    def __init__(self, run_dir: Path) -> None:
        manifest = read_json(last_checkpoint(run_dir) / "manifest.json")
        self.step = {version: step for version, step, _ in manifest["lineage"]}
        self.parent = {version: parent for version, _, parent in manifest["lineage"]}

    def staleness(self, sampled: int, using: int) -> int:
        """Optimizer steps from ``sampled`` up to the common ancestor and down again to ``using``."""
        mine = self._line(using)
        common = next(version for version in self._line(sampled) if version in mine)
        return self.step[sampled] + self.step[using] - 2 * self.step[common]

    def _line(self, version: int) -> list[int]:
        found = []
        while version >= 0:
            found.append(version)
            version = self.parent[version]
        return found


def token_staleness(run_dir: Path) -> tuple[list[int], int]:
    """Age of every sampled token that some step was given, and how many tokens were sampled, from the exported
    trajectories, the ledger and the lineage."""
    entries = {entry.trajectory: entry for entry in read_export_index(run_dir)}
    lineage, staleness, sampled = CheckpointLineage(run_dir), list[int](), 0
    for line in read_ledger(run_dir):
        for name in line["trained"]:
            for segment in read_exported_trajectory(run_dir, entries[name]).segments:
                versions, counts = np.unique(segment.versions[segment.loss_mask == 1], return_counts=True)
                for version, count in zip(versions.tolist(), counts.tolist(), strict=True):
                    staleness += [lineage.staleness(version, line["version"])] * count
                    sampled += count
    return staleness, sampled

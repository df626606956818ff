"""If this fails, whoever changes a run's journal, or sends a run with a changed one, ends every resume of it."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from protocol import codec
from tests.support.runs.cluster_runs import MiniRuns
from tests.support.runs.run_resources import kill_command
from tests.support.runs.trajectory_accounting import assert_accounting_balances

pytestmark = [pytest.mark.docker, pytest.mark.ray, pytest.mark.sglang, pytest.mark.chaos]
STEPS = 3
OPTIONS = ("--steps", str(STEPS), "--set", "evaluation.tasks_per_family=0", "--set", "checkpoint.every_steps=100")
FOREIGN_VERSION = 2**31 - 1


def poison(journal: Path) -> str:
    """Let one stored trajectory say that unknown weights sampled it; checksum and digest fit what is there."""
    with closing(sqlite3.connect(journal, isolation_level=None)) as database:
        name, blob = database.execute("SELECT trajectory, blob FROM payloads ORDER BY rowid LIMIT 1").fetchone()
        trajectory = codec.unpack_trajectory(blob)
        segments = [
            replace(each, versions=np.where(each.loss_mask == 1, FOREIGN_VERSION, each.versions).astype(np.int32))
            for each in trajectory.segments
        ]
        forged = codec.pack_trajectory(replace(trajectory, segments=tuple(segments)))
        digest = codec.inspect_blob(forged).digest
        database.execute("UPDATE payloads SET blob = ? WHERE trajectory = ?", (forged, name))
        database.execute("UPDATE trajectories SET digest = ? WHERE trajectory = ?", (digest, name))
    return name


def test_a_run_with_a_poisoned_journal_is_resumed_to_its_end(mini_runs: MiniRuns) -> None:
    run = mini_runs.start("poisoned", *OPTIONS)
    run.wait_step(1)
    kill_command(run)
    name = poison(run.path / "buffer" / "journal.sqlite")

    assert mini_runs.resume("poisoned").succeed()["steps"] == STEPS
    state, _, reason = assert_accounting_balances(run.path).rows[name]
    assert (state, reason) == ("dropped", "unusable")
    assert name in {event["trajectory"] for event in run.events("trajectory.unusable")}

"""If this fails, a run whose engines serve other weights than its learner's learns from what its policy never said."""

from __future__ import annotations

import pytest

from launch.run_records.metrics_log import read_metrics
from protocol.cli.exit_codes import EXIT_USER
from tests.support.runs.cluster_runs import MiniRuns

pytestmark = [pytest.mark.docker, pytest.mark.ray, pytest.mark.sglang, pytest.mark.slow]


def test_a_run_that_begins_out_of_parity_ends_before_its_first_step(mini_runs: MiniRuns) -> None:
    run = mini_runs.start(
        "drifted", "--set", "evaluation.tasks_per_family=0", program="tests.support.fakes.drifted_run"
    )
    ended = run.finish()
    assert ended.exit_code == EXIT_USER, ended.stderr
    (message,) = [line for line in ended.stderr.splitlines() if "disagree" in line and "parity.max_k3" in line][-1:]
    assert "engine.dtype = 'float32' and learner.dtype = 'float32'" in message
    (measured,) = run.events("parity.measured")
    assert measured["k3"] > measured["limit"] == 1e-4
    assert run.events("learner.step") == []
    assert read_metrics(run.path) == []
    assert [event["step"] for event in run.events("checkpoint.saved")] == [0], "a higher limit goes on from there"
    assert run.list_resources() == []

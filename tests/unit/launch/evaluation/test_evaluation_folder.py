"""If these fail, an evaluation that was broken off begins anew, or two of them are mixed into one score."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from launch.evaluation.results.evaluation_folder import EvaluationSpec, open_evaluation_folder, read_attempt_records
from protocol.errors import UserError
from protocol.evaluation import ATTEMPTS_FILE, AttemptError, AttemptId, AttemptRecord, AttemptStage, AttemptVerdict
from protocol.trajectory import EpisodeStatus, InfraFailure

SPEC = EvaluationSpec(solver="served", model="/m", seed=1, recipe={"agent.kind": "bash", "agent.max_turns": 4})
DONE = AttemptRecord("a", 0, "f", 1.0, AttemptVerdict(True, 1.0, 1.0, EpisodeStatus.COMPLETED, {"tests": 1.0}))
FAILED = AttemptRecord("a", 1, "f", 1.0, failure=AttemptError(AttemptStage.AGENT, InfraFailure.ENGINE, "gone"))


def test_recorded_attempts_are_there_when_the_folder_is_reopened(tmp_path: Path) -> None:
    with open_evaluation_folder(tmp_path / "out", SPEC) as folder:
        folder.add_record(DONE)
        folder.add_record(FAILED)
    with open_evaluation_folder(tmp_path / "out", SPEC) as folder:
        assert folder.records == {AttemptId("a", 0): DONE, AttemptId("a", 1): FAILED}


def test_a_torn_last_line_counts_as_an_attempt_that_was_not_made(tmp_path: Path) -> None:
    with open_evaluation_folder(tmp_path, SPEC) as folder:
        folder.add_record(DONE)
    file = tmp_path / ATTEMPTS_FILE
    file.write_bytes(file.read_bytes() + b'{"task": "b", "num')
    with open_evaluation_folder(tmp_path, SPEC) as folder:
        folder.add_record(FAILED)
    assert read_attempt_records(tmp_path) == {DONE.attempt_id: DONE, FAILED.attempt_id: FAILED}


def test_a_folder_of_another_evaluation_is_refused_with_three_remedies(tmp_path: Path) -> None:
    with open_evaluation_folder(tmp_path, SPEC):
        pass
    other = replace(SPEC, model="/n", recipe={"agent.kind": "json", "agent.max_turns": 4})
    with pytest.raises(UserError) as refused, open_evaluation_folder(tmp_path, other):
        pass
    line = str(refused.value)
    assert "another model (/m, not /n), agent.kind (bash, not json): give what it had" in line
    assert "--output FOLDER" in line
    assert f"rm -r {tmp_path}" in line


def test_a_folder_of_something_else_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("")
    with (
        pytest.raises(UserError, match="something other than an evaluation"),
        open_evaluation_folder(tmp_path, SPEC),
    ):
        pass
    assert [each.name for each in tmp_path.iterdir()] == ["thesis.tex"]


def test_a_folder_in_use_by_another_evaluation_is_refused(tmp_path: Path) -> None:
    with (
        open_evaluation_folder(tmp_path, SPEC),
        pytest.raises(UserError, match="in use by process"),
        open_evaluation_folder(tmp_path, SPEC),
    ):
        pass


def test_a_line_that_is_no_attempt_is_named(tmp_path: Path) -> None:
    (tmp_path / ATTEMPTS_FILE).write_text('{"task": 3}\n')
    with pytest.raises(UserError, match=r"attempts\.jsonl:1 is not an attempt"):
        read_attempt_records(tmp_path)

"""Formats replays as one JSON object and as lines of text.  Pure.

What sandboxes printed is cut here, so that an object stays one that can be read.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from dataclasses import asdict
from itertools import islice
from typing import cast

from launch.evaluation.attempts import AttemptVerdict
from launch.replay.scripted_policy import ObservationComparison
from launch.replay.verdict_comparison import ReplayAttempt, ReplayComparison, describe_changed_tests, verdicts_agree
from launch.trajectory_reader.recorded_trajectory import RecordedTrajectory
from protocol.events import JsonValue
from protocol.truncation import truncate_middle

_CHARS = 2_000
"""The largest number of characters of one observation."""
_MOST = 20
"""The largest number of observations of one replay, and of lines of one difference."""


def build_replay_report(
    recorded: RecordedTrajectory, judged: ReplayComparison, *, task_changed: bool
) -> dict[str, JsonValue]:
    return {
        "trajectory": recorded.name,
        "task": recorded.task,
        "task_changed": task_changed,
        "recorded": _verdict(judged.recorded_verdict),
        "replays": [_replay(judged.recorded_verdict, each) for each in judged.attempts],
        "times": len(judged.attempts),
        "agree": len(judged.agreeing_attempts),
        "failed": len(judged.failed_attempts),
        "same": judged.all_agree,
        "flaky": judged.flaky,
        "explanation": judged.explanation,
    }


def _verdict(verdict: AttemptVerdict) -> dict[str, JsonValue]:
    return cast("dict[str, JsonValue]", {**asdict(verdict), "tests": [asdict(test) for test in verdict.tests]})


def _replay(then: AttemptVerdict, again: ReplayAttempt) -> dict[str, JsonValue]:
    return {
        "same_verdict": verdicts_agree(then, again.verdict),
        "verdict": _verdict(again.verdict) if again.verdict else None,
        "failure": cast("JsonValue", asdict(again.failure)) if again.failure else None,
        "changed_tests": [*describe_changed_tests(then, again.verdict)] if again.verdict else [],
        "observations": len(again.observations),
        "different": len(again.different_observations),
        "differences": [_difference(each) for each in again.different_observations[:_MOST]],
        "seconds": round(again.seconds, 3),
    }


def _difference(each: ObservationComparison) -> JsonValue:
    return {
        "turn": each.turn,
        "commands": [truncate_middle(command, _CHARS) for command in each.commands],
        "recorded": truncate_middle(each.recorded_output, _CHARS),
        "replayed": truncate_middle(each.replayed_output, _CHARS),
        "recorded_exit_code": each.recorded_exit_code,
        "replayed_exit_code": each.replayed_exit_code,
    }


def format_replay_lines(recorded: RecordedTrajectory, judged: ReplayComparison, *, task_changed: bool) -> Iterator[str]:
    yield f"{recorded.name}: task {recorded.task}, {_worded(judged.recorded_verdict)} then"
    if task_changed:
        yield "the task is not what it was: its prompt is another now"
    shown = False
    for each in judged.attempts:
        yield f"  {each.number + 1}: {_outcome(judged.recorded_verdict, each)}"
        yield from (f"     {line}" for line in _tests(judged.recorded_verdict, each))
        if each.different_observations and not shown:
            shown = True
            yield from (f"     {line}" for line in _differences(each))
    agreeing = f"{len(judged.agreeing_attempts)} of {len(judged.attempts)} replays agree"
    yield f"{agreeing}{'; they differ among themselves' if judged.flaky else ''}: {judged.explanation}"


def _worded(verdict: AttemptVerdict) -> str:
    return f"{'passed' if verdict.passed else 'failed'}, reward {verdict.reward:g}, {verdict.status}"


def _outcome(then: AttemptVerdict, again: ReplayAttempt) -> str:
    saw = f"{len(again.different_observations)} of {len(again.observations)} observations differ"
    if again.verdict is None:
        failure = again.failure
        return f"no verdict ({failure.stage}: {failure.kind}: {failure.message})" if failure else "no verdict"
    same = "the same verdict" if verdicts_agree(then, again.verdict) else "ANOTHER verdict"
    return f"{same} ({_worded(again.verdict)}) · {saw}"


def _tests(then: AttemptVerdict, again: ReplayAttempt) -> list[str]:
    return describe_changed_tests(then, again.verdict) if again.verdict else []


def _differences(again: ReplayAttempt) -> Iterator[str]:
    for each in islice(again.different_observations, _MOST):
        command = truncate_middle(" ; ".join(each.commands) or "(no command)", 120).replace("\n", " ")
        codes = f" · exit code {each.recorded_exit_code} then, {each.replayed_exit_code} now"
        yield f"turn {each.turn}: {command}{codes if each.recorded_exit_code != each.replayed_exit_code else ''}"
        before, after = (
            truncate_middle(text, _CHARS).splitlines() for text in (each.recorded_output, each.replayed_output)
        )
        changes = (line for line in difflib.unified_diff(before, after, lineterm="", n=0) if not line.startswith("@@"))
        yield from (f"  {line}" for line in islice(changes, 2, _MOST))

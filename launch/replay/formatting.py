"""Formats replays as one JSON object and as lines of text.  Pure.

Output of sandboxes is truncated, so that the object stays readable.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from dataclasses import asdict
from itertools import islice
from typing import cast

from launch.replay.scripted_policy import ObservationComparison
from launch.replay.verdict_comparison import ReplayAttempt, ReplayComparison, describe_changed_tests, verdicts_agree
from launch.trajectory_reader.recorded_trajectory import RecordedTrajectory
from protocol.evaluation import AttemptVerdict
from protocol.events import JsonValue
from protocol.truncation import truncate_middle

_CHARS = 2_000
"""Maximum number of characters of one observation."""
_MAX_ITEMS = 20
"""Maximum number of observations of one replay, and of lines of one difference."""


def build_replay_report(
    recorded: RecordedTrajectory, comparison: ReplayComparison, *, task_changed: bool
) -> dict[str, JsonValue]:
    return {
        "trajectory": recorded.name,
        "task": recorded.task,
        "task_changed": task_changed,
        "recorded": _verdict(comparison.recorded_verdict),
        "replays": [_replay(comparison.recorded_verdict, each) for each in comparison.attempts],
        "times": len(comparison.attempts),
        "agree": len(comparison.agreeing_attempts),
        "failed": len(comparison.failed_attempts),
        "same": comparison.all_agree,
        "flaky": comparison.flaky,
        "explanation": comparison.explanation,
    }


def _verdict(verdict: AttemptVerdict) -> dict[str, JsonValue]:
    return cast("dict[str, JsonValue]", {**asdict(verdict), "tests": [asdict(test) for test in verdict.tests]})


def _replay(recorded: AttemptVerdict, replay: ReplayAttempt) -> dict[str, JsonValue]:
    return {
        "same_verdict": verdicts_agree(recorded, replay.verdict),
        "verdict": _verdict(replay.verdict) if replay.verdict else None,
        "failure": cast("JsonValue", asdict(replay.failure)) if replay.failure else None,
        "changed_tests": [*describe_changed_tests(recorded, replay.verdict)] if replay.verdict else [],
        "observations": len(replay.observations),
        "different": len(replay.different_observations),
        "differences": [_difference(each) for each in replay.different_observations[:_MAX_ITEMS]],
        "seconds": round(replay.seconds, 3),
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


def format_replay_lines(
    recorded: RecordedTrajectory, comparison: ReplayComparison, *, task_changed: bool
) -> Iterator[str]:
    yield f"{recorded.name}: task {recorded.task}, recorded as {_describe(comparison.recorded_verdict)}"
    if task_changed:
        yield "the task has changed since: its prompt is different"
    shown = False
    for each in comparison.attempts:
        yield f"  {each.number + 1}: {_outcome(comparison.recorded_verdict, each)}"
        yield from (f"     {line}" for line in _tests(comparison.recorded_verdict, each))
        if each.different_observations and not shown:
            shown = True
            yield from (f"     {line}" for line in _differences(each))
    agreeing = f"{len(comparison.agreeing_attempts)} of {len(comparison.attempts)} replays agree"
    yield f"{agreeing}{'; the replays differ from each other' if comparison.flaky else ''}: {comparison.explanation}"


def _describe(verdict: AttemptVerdict) -> str:
    return f"{'passed' if verdict.passed else 'failed'}, reward {verdict.reward:g}, {verdict.status}"


def _outcome(recorded: AttemptVerdict, replay: ReplayAttempt) -> str:
    differing = f"{len(replay.different_observations)} of {len(replay.observations)} observations differ"
    if replay.verdict is None:
        failure = replay.failure
        return f"no verdict ({failure.stage}: {failure.kind}: {failure.message})" if failure else "no verdict"
    same = "same verdict" if verdicts_agree(recorded, replay.verdict) else "DIFFERENT verdict"
    return f"{same} ({_describe(replay.verdict)}) · {differing}"


def _tests(recorded: AttemptVerdict, replay: ReplayAttempt) -> list[str]:
    return describe_changed_tests(recorded, replay.verdict) if replay.verdict else []


def _differences(replay: ReplayAttempt) -> Iterator[str]:
    for each in islice(replay.different_observations, _MAX_ITEMS):
        command = truncate_middle(" ; ".join(each.commands) or "(no command)", 120).replace("\n", " ")
        codes = f" · exit code {each.recorded_exit_code} recorded, {each.replayed_exit_code} replayed"
        yield f"turn {each.turn}: {command}{codes if each.recorded_exit_code != each.replayed_exit_code else ''}"
        before, after = (
            truncate_middle(text, _CHARS).splitlines() for text in (each.recorded_output, each.replayed_output)
        )
        changes = (line for line in difflib.unified_diff(before, after, lineterm="", n=0) if not line.startswith("@@"))
        yield from (f"  {line}" for line in islice(changes, 2, _MAX_ITEMS))

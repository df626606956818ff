"""How replays are told: as one JSON object, and as lines for a person.  Pure.

What sandboxes printed is cut here, so that an object stays one that can be read.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from dataclasses import asdict
from itertools import islice
from typing import cast

from launch.evaluate.attempts import Verdict
from launch.recorded.trajectory import Recorded
from launch.replay.script import Observation
from launch.replay.verdicts import Again, Judged, agrees, changed_tests
from protocol.events import Json
from sandbox.truncate import shorten

_CHARS = 2_000
"""Of one observation."""
_MOST = 20
"""Observations of one replay, and lines of one difference."""


def told(recorded: Recorded, judged: Judged, *, task_changed: bool) -> dict[str, Json]:
    return {
        "trajectory": recorded.name,
        "task": recorded.task,
        "task_changed": task_changed,
        "recorded": _verdict(judged.then),
        "replays": [_replay(judged.then, each) for each in judged.replays],
        "times": len(judged.replays),
        "agree": len(judged.agreeing),
        "failed": len(judged.failed),
        "same": judged.same,
        "flaky": judged.flaky,
        "meaning": judged.meaning,
    }


def _verdict(verdict: Verdict) -> dict[str, Json]:
    return cast("dict[str, Json]", {**asdict(verdict), "tests": [asdict(test) for test in verdict.tests]})


def _replay(then: Verdict, again: Again) -> dict[str, Json]:
    return {
        "same_verdict": agrees(then, again.verdict),
        "verdict": _verdict(again.verdict) if again.verdict else None,
        "failure": cast("Json", asdict(again.failure)) if again.failure else None,
        "changed_tests": [*changed_tests(then, again.verdict)] if again.verdict else [],
        "observations": len(again.observations),
        "different": len(again.different),
        "differences": [_difference(each) for each in again.different[:_MOST]],
        "seconds": round(again.seconds, 3),
    }


def _difference(each: Observation) -> Json:
    return {
        "turn": each.turn,
        "commands": [shorten(command, _CHARS) for command in each.commands],
        "then": shorten(each.then, _CHARS),
        "now": shorten(each.now, _CHARS),
        "exit_code_then": each.exit_code,
        "exit_code_now": each.exit_code_now,
    }


def lines(recorded: Recorded, judged: Judged, *, task_changed: bool) -> Iterator[str]:
    yield f"{recorded.name}: task {recorded.task}, {_worded(judged.then)} then"
    if task_changed:
        yield "the task is not what it was: its prompt is another now"
    shown = False
    for each in judged.replays:
        yield f"  {each.number + 1}: {_outcome(judged.then, each)}"
        yield from (f"     {line}" for line in _tests(judged.then, each))
        if each.different and not shown:
            shown = True
            yield from (f"     {line}" for line in _differences(each))
    agreeing = f"{len(judged.agreeing)} of {len(judged.replays)} replays agree"
    yield f"{agreeing}{'; they differ among themselves' if judged.flaky else ''}: {judged.meaning}"


def _worded(verdict: Verdict) -> str:
    return f"{'passed' if verdict.passed else 'failed'}, reward {verdict.reward:g}, {verdict.status}"


def _outcome(then: Verdict, again: Again) -> str:
    saw = f"{len(again.different)} of {len(again.observations)} observations differ"
    if again.verdict is None:
        failure = again.failure
        return f"no verdict ({failure.stage}: {failure.kind}: {failure.message})" if failure else "no verdict"
    same = "the same verdict" if agrees(then, again.verdict) else "ANOTHER verdict"
    return f"{same} ({_worded(again.verdict)}) · {saw}"


def _tests(then: Verdict, again: Again) -> list[str]:
    return changed_tests(then, again.verdict) if again.verdict else []


def _differences(again: Again) -> Iterator[str]:
    for each in islice(again.different, _MOST):
        command = shorten(" ; ".join(each.commands) or "(no command)", 120).replace("\n", " ")
        codes = f" · exit code {each.exit_code} then, {each.exit_code_now} now"
        yield f"turn {each.turn}: {command}{codes if each.exit_code != each.exit_code_now else ''}"
        before, after = (shorten(text, _CHARS).splitlines() for text in (each.then, each.now))
        changes = (line for line in difflib.unified_diff(before, after, lineterm="", n=0) if not line.startswith("@@"))
        yield from (f"  {line}" for line in islice(changes, 2, _MOST))

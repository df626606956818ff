"""Asks pytest for canaries, and judges what became of them.  Pure.

Tests that import modules of the agent run them in pytest's process, where they can replace what decides outcomes; tests
that start its programs as root let them end pytest and write reports in its stead. So each session of pytest runs
tests of longshore's own that must fail (:mod:`sandbox.toolchain.in_container.pytest_canaries`), and proves by a secret
that they did, and what became of the tests of the task. A run with a session that began and did not is void, and so is
one whose reports name no failure although its only session had one. A reward file is believed without reports that name
tests if the tests of each session passed.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

from sandbox.grading.canary_conflicts import find_canary_conflict
from sandbox.grading.isolation.decision import Isolation
from sandbox.grading.isolation.environment import TEMPORARY_DIR
from sandbox.tasks.task import Task
from sandbox.toolchain.in_container.canary_proofs import LIED, next_secret, proof_of
from sandbox.toolchain.in_container.layout import CANARIES_VARIABLE, IMAGE_CANARIES
from sandbox.toolchain.in_container.session_outcome import SessionOutcome

CANARIES_FILE = f"{TEMPORARY_DIR}/canaries"
MAX_RECORD_BYTES = 64 << 10
_MOST_SESSIONS = 256


class CanaryVerdict(StrEnum):
    """What the canaries of a run say, the worst last; the value is why it is void."""

    TRUE = ""
    SILENT = "pytest was ended before its end"
    UNPROVEN = "no report names a test, and not all of pytest's ran and passed"
    UNREPORTED = "a test failed in pytest, and its reports name no failure"
    LIED = "canaries passed: code in pytest's process falsified its outcomes"


class CanaryRecord(NamedTuple):
    """The record of a run says what its canaries showed, and what became of the tests of its sessions."""

    verdict: CanaryVerdict
    outcomes: tuple[SessionOutcome, ...] = ()
    """The outcome of each session; empty unless the verdict is TRUE."""

    @property
    def proves_passes(self) -> bool:
        """True if pytest ran and its tests passed."""
        return set(self.outcomes) == {SessionOutcome.PASSED}


@dataclass(frozen=True, slots=True)
class Canaries:
    """The canaries of one run of the tests."""

    secret: str = field(default_factory=secrets.token_hex, repr=False)

    @property
    def files(self) -> dict[str, bytes]:
        return {CANARIES_FILE: self.secret.encode()}

    def variables(self, given: Mapping[str, str], isolation: Isolation) -> dict[str, str]:
        """Return the variables of the tests, which are to have those ``given``, by which pytest finds the canaries."""
        asked = {CANARIES_VARIABLE: CANARIES_FILE}
        if isolation is Isolation.IMAGE:
            asked["PYTHONPATH"] = ":".join(filter(None, (given.get("PYTHONPATH"), IMAGE_CANARIES)))
        return asked

    def judge(self, record: bytes) -> CanaryRecord:
        """Judge what became of the file."""
        left, *said = record.decode(errors="replace").split() or [""]
        if LIED in said:
            return CanaryRecord(CanaryVerdict.LIED)
        secret, outcomes = self.secret, list[SessionOutcome]()
        for _ in range(_MOST_SESSIONS):
            if secret == left:
                return CanaryRecord(CanaryVerdict.TRUE, tuple(outcomes))
            outcome = next((each for each in SessionOutcome if proof_of(secret, each) in said), None)
            if outcome is None:
                break
            outcomes.append(outcome)
            secret = next_secret(secret)
        return CanaryRecord(CanaryVerdict.SILENT)


def plan_canaries(task: Task) -> Canaries | None:
    """Return the canaries for a task; None if its own tests rule them out."""
    return None if find_canary_conflict(task) else Canaries()

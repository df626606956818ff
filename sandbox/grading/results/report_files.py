"""Reads report files of test runners: CTRF, JUnit, ``reward.txt`` and ``reward.json``. Pure.

Formats: CTRF (``results.tests[].{name,status}``), JUnit XML as pytest and most others write it, Harbor's reward files
(one finite number; or an object of them, whose ``reward`` counts, or else the mean of all). An unreadable CTRF or JUnit
file is no report: the tests that it should have named count as failed. An unreadable reward file is a fault, as it is
in Harbor.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from typing import Annotated, cast
from xml.parsers import expat

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from protocol.trajectory import MAX_REWARD
from sandbox.grading.results.verdict import GradingOutcome, GradingReport, ReportedTest, worst_outcome

MAX_REPORT_BYTES = 4 << 20
"""Maximum size of a report file; a longer one is not read."""
_MAX_DEPTH = 64
_NOTHING = GradingReport()
_CTRF_STATUS = {"passed": GradingOutcome.PASSED, "failed": GradingOutcome.FAILED, "skipped": GradingOutcome.SKIPPED}
_JUNIT_STATUS = {
    "notrun": GradingOutcome.SKIPPED,
    "disabled": GradingOutcome.SKIPPED,
    "skipped": GradingOutcome.SKIPPED,
    "suppressed": GradingOutcome.SKIPPED,
    "ignored": GradingOutcome.SKIPPED,
    "fail": GradingOutcome.FAILED,
    "failed": GradingOutcome.FAILED,
    "error": GradingOutcome.ERROR,
}
"""Outcomes by the values of ``status`` or ``result`` of writers other than pytest, which may omit the child element."""
_JUNIT_XFAIL = "pytest.xfail"
_JUNIT_CHILD = {"failure": GradingOutcome.FAILED, "error": GradingOutcome.ERROR, "skipped": GradingOutcome.SKIPPED}


def read_report(path: str, data: bytes) -> GradingReport:
    """Read the report file of this name: ``*.xml`` is JUnit, ``reward.*`` a reward, any other ``*.json`` CTRF."""
    name = path.rpartition("/")[2]
    if name.endswith(".xml"):
        return read_junit(data)
    if name == "reward.json":
        return _read_reward(name, data, _json_rewards)
    if name.endswith(".json"):
        return read_ctrf(data)
    return _read_reward(name, data, _text_rewards)


class _CtrfTest(BaseModel):
    model_config = ConfigDict(extra="ignore")
    name: Annotated[str, Field(min_length=1)]
    status: str


class _CtrfResults(BaseModel):
    model_config = ConfigDict(extra="ignore")
    tests: list[_CtrfTest]


class _Ctrf(BaseModel):
    model_config = ConfigDict(extra="ignore")
    results: _CtrfResults


def read_ctrf(data: bytes) -> GradingReport:
    """Read CTRF; ``pending`` and ``other`` are neither passed nor failed."""
    try:
        tests = _Ctrf.model_validate_json(data).results.tests
    except ValidationError:
        return _NOTHING
    return GradingReport(
        tuple(ReportedTest(test.name, _CTRF_STATUS.get(test.status, GradingOutcome.MISSING)) for test in tests)
    )


def read_junit(data: bytes) -> GradingReport:
    """Read JUnit's test cases as ``classname::name``. A document with a DTD, and so with entities, is no report."""
    reader = _JUnit()
    parser = expat.ParserCreate()
    parser.StartElementHandler, parser.EndElementHandler = reader.start, reader.end
    parser.StartDoctypeDeclHandler = reader.doctype
    try:
        parser.Parse(data, True)
    except (expat.ExpatError, _RefusedError):
        return _NOTHING
    return GradingReport(tuple(reader.tests))


class _RefusedError(Exception):
    """The document is one that no test runner writes."""


class _JUnit:
    def __init__(self) -> None:
        self.tests: list[ReportedTest] = []
        self._case: tuple[str, GradingOutcome] | None = None
        self._depth = 0

    def doctype(self, *_: object) -> None:
        raise _RefusedError

    def start(self, tag: str, attributes: dict[str, str]) -> None:
        self._depth += 1
        if self._depth > _MAX_DEPTH:
            raise _RefusedError
        if tag == "testcase":
            name, group = attributes.get("name", ""), attributes.get("classname", "")
            stated = (_JUNIT_STATUS.get(attributes.get(key, "").lower()) for key in ("status", "result"))
            self._case = (
                f"{group}::{name}" if group else name,
                worst_outcome((GradingOutcome.PASSED, *filter(None, stated))),
            )
        elif self._case is not None and tag in _JUNIT_CHILD:
            xfail = tag == "skipped" and attributes.get("type") == _JUNIT_XFAIL
            outcome = GradingOutcome.XFAILED if xfail else _JUNIT_CHILD[tag]
            self._case = (self._case[0], worst_outcome((self._case[1], outcome)))

    def end(self, tag: str) -> None:
        self._depth -= 1
        if tag == "testcase" and self._case is not None:
            self.tests.append(ReportedTest(*self._case))
            self._case = None


def _text_rewards(data: bytes) -> dict[str, float]:
    return {"reward": float(data)}


def _json_rewards(data: bytes) -> dict[str, float]:
    """Return the number in ``data``, or those of an object.  Raises ValueError, TypeError or OverflowError."""
    parsed: object = json.loads(data)
    numbers = cast("dict[str, object]", parsed) if isinstance(parsed, dict) else {"reward": parsed}
    values = {name: value for name, value in numbers.items() if isinstance(value, int | float) and math.isfinite(value)}
    if other := sorted(numbers.keys() - values.keys()):
        raise ValueError(f"{other[0]} is not a finite number")
    if not values:
        raise ValueError("it has no number")
    return {name: float(value) for name, value in values.items()}


def _read_reward(name: str, data: bytes, parse: Callable[[bytes], dict[str, float]]) -> GradingReport:
    """Return the rewards in a file; nothing if the file is empty, a fault if it is unreadable."""
    if not data:
        return _NOTHING
    try:
        rewards = parse(data)
    except (ValueError, TypeError, OverflowError, RecursionError) as error:
        return GradingReport(fault=f"{name} is unreadable: {error}")
    if not (all(map(math.isfinite, rewards.values())) and math.isfinite(sum(rewards.values()))):
        return GradingReport(fault=f"{name} is not finite")
    report = GradingReport(rewards=rewards)
    if report.reward is not None and abs(report.reward) > MAX_REWARD:
        return GradingReport(fault=f"{name} says {report.reward:g}: a reward is from {-MAX_REWARD:g} to {MAX_REWARD:g}")
    return report

"""If these fail, a failure in a report file is overlooked, or a manipulated report file counts."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandbox.grading.results.report_files import read_report
from sandbox.grading.results.verdict import GradingOutcome, GradingReport, ReportedTest

NOTHING = GradingReport()
P = GradingOutcome.PASSED


def ctrf(*tests: tuple[str, str]) -> bytes:
    named = [{"name": name, "status": status, "duration": 1} for name, status in tests]
    return json.dumps({"results": {"tool": {"name": "pytest"}, "summary": {"tests": 9}, "tests": named}}).encode()


def test_ctrf_passed_is_the_only_pass():
    data = ctrf(*((status, status) for status in ("passed", "failed", "skipped", "pending", "other", "PASSED")))
    outcomes = {test.name: test.outcome for test in read_report("/logs/verifier/ctrf.json", data).tests}
    assert outcomes["failed"] is GradingOutcome.FAILED
    assert [name for name, outcome in outcomes.items() if outcome is P] == ["passed"]


JUNIT = b"""<?xml version="1.0" encoding="utf-8"?>
<testsuites><testsuite name="pytest" tests="5">
<testcase classname="tests.test_a.TestC" name="test_x[1]" time="0.1"><system-out>failure</system-out></testcase>
<testcase classname="tests.test_a" name="bad"><failure message="no">trace</failure></testcase>
<testcase classname="tests.test_a" name="broken"><failure/><error/><skipped/></testcase>
<testcase name="skipped"><skipped type="pytest.skip"/></testcase>
</testsuite></testsuites>"""


def test_junit_cases_get_their_outcome_from_their_child_elements():
    assert read_report("/logs/junit.xml", JUNIT).tests == (
        ReportedTest("tests.test_a.TestC::test_x[1]", P),
        ReportedTest("tests.test_a::bad", GradingOutcome.FAILED),
        ReportedTest("tests.test_a::broken", GradingOutcome.ERROR),
        ReportedTest("skipped", GradingOutcome.SKIPPED),
    )


def test_junit_cases_that_were_not_run_have_not_passed():
    """googletest, CTest and others report this only in attributes."""
    cases = (
        b'<testcase name="run" status="run" result="completed"/>'
        b'<testcase name="off" status="notrun" result="suppressed"/>'
        b'<testcase name="left" status="run" result="skipped"/><testcase name="no" status="Disabled"/>'
        b'<testcase name="thrown"><failure type="pytest.xfail"/></testcase>'
        b'<testcase name="bad" status="fail"/><testcase name="x"><skipped type="pytest.xfail"/></testcase>'
    )
    outcomes = {
        test.name: test.outcome for test in read_report("/j.xml", b"<testsuite>" + cases + b"</testsuite>").tests
    }
    assert outcomes == {
        "run": P,
        "off": GradingOutcome.SKIPPED,
        "left": GradingOutcome.SKIPPED,
        "no": GradingOutcome.SKIPPED,
        "thrown": GradingOutcome.FAILED,
        "bad": GradingOutcome.FAILED,
        "x": GradingOutcome.XFAILED,
    }


BOMB = b'<!DOCTYPE x [<!ENTITY a "aaaa"><!ENTITY b "&a;&a;&a;">]><testsuite><testcase name="&b;"/></testsuite>'


@pytest.mark.parametrize(
    ("path", "data"),
    [
        ("/a/junit.xml", BOMB),
        ("/a/junit.xml", BOMB.decode().encode("utf-16")),
        ("/a/junit.xml", b"<a>" * 100_000),
        ("/a/junit.xml", JUNIT[:-20]),
        ("/a/ctrf.json", ctrf(("a", "passed"))[:-3]),
        ("/a/ctrf.json", b"[" * 100_000),
        ("/a/ctrf.json", b'{"results": {"tests": [{"name": "", "status": "passed"}]}}'),
        ("/a/ctrf.json", b'{"results": {"tests": {"a": "passed"}}}'),
        ("/a/reward.txt", b""),
        ("/a/reward.json", b""),
    ],
)
def test_an_unreadable_report_is_empty(path, data):
    assert read_report(path, data) == NOTHING


@pytest.mark.parametrize(
    ("name", "data"),
    [
        *(("reward.txt", data) for data in (b"nan", b"inf", b"1e308", b"-1e10", b"1 or so", b"\n", b"\xff", b"0,5")),
        ("reward.json", b"1" + b"0" * 400),
        *(("reward.json", data) for data in (b"{}", b"[1]", b"null", b'"1"', b"1e999", b"{", b"[" * 100_000)),
        *(
            ("reward.json", data)
            for data in (b'{"reward": NaN}', b'{"reward": "yes"}', b'{"reward": 1, "note": "late"}')
        ),
    ],
)
def test_an_unreadable_reward_is_a_fault(name, data):
    """Harbor ends such a trial with an error, whatever another file says."""
    report = read_report(f"/logs/verifier/{name}", data)
    assert report.fault.startswith(name)
    assert report.reward is None


@pytest.mark.parametrize(
    ("name", "data", "reward"),
    [
        ("reward.txt", b"1\n", 1.0),
        ("reward.txt", b" 0.25", 0.25),
        ("reward.txt", b"2", 2.0),
        ("reward.txt", b"-1", -1.0),
        ("reward.json", b"1", 1.0),
        ("reward.json", b"true", 1.0),
        ("reward.json", b'{"reward": 0.5, "style": 1}', 0.5),
        ("reward.json", b'{"reward": -7, "seconds": 12}', -7.0),
        ("reward.json", b'{"speed": 1, "style": 0}', 0.5),
    ],
)
def test_a_reward_is_any_finite_number(name, data, reward):
    assert read_report(f"/logs/verifier/{name}", data).reward == reward


@given(st.sampled_from(["a.xml", "ctrf.json", "reward.json", "reward.txt"]), st.binary(max_size=200))
def test_no_bytes_break_the_reader(name, data):
    assert isinstance(read_report(f"/{name}", data), GradingReport)

"""If these fail, output that is not pytest's own summary changes a verdict, or missing output counts as a pass."""

import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandbox.grading.results.marked_output import make_output_parser
from sandbox.grading.results.pytest_summary import SummaryParser
from sandbox.grading.results.verdict import GradingOutcome, ReportedTest, judge_reports
from sandbox.tasks.task_grading import ResultsFormat

HEADER = b"=========== short test summary info ===========\n"


def verdict(text: bytes, expected=("a", "b")) -> dict[str, bool]:
    parser = SummaryParser()
    parser.feed(text)
    return {test.name: test.passed for test in judge_reports(expected, {}, [parser.report()]).tests}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (HEADER + b"PASSED a\nPASSED b\n", {"a": True, "b": True}),
        (HEADER + b"PASSED t.py::a\nFAILED t.py::b - AssertionError: PASSED b\n", {"a": True, "b": False}),
        (HEADER + b"PASSED a\nSKIPPED b\n", {"a": True, "b": False}),
        (HEADER + b"PASSED a\n", {"a": True, "b": False}),
        (HEADER + b"PASSED a\nERROR a\nPASSED b", {"a": False, "b": True}),
        (HEADER + b"FAILED a\nPASSED a\nPASSED b\n", {"a": False, "b": True}),
        (HEADER + b"PASSED a\nPASSED b\n" + HEADER + b"FAILED a\nPASSED b\n", {"a": False, "b": True}),
        (b"PASSED a\nPASSED b\n", {"a": False, "b": False}),
        (b"", {"a": False, "b": False}),
        (HEADER + b"PASSEDa\n PASSED  b\r\n", {"a": False, "b": True}),
        (HEADER + b"PASSED a\n1 passed in 0.01s\n" + HEADER + b"PASSED b\nPASSED c\n", {"a": True, "b": True}),
        (HEADER + b"PASSED a\nXPASS b\n", {"a": True, "b": True}),
        (HEADER + b"PASSED a\nXFAIL b\n", {"a": True}),
        (HEADER + b"PASSED a\nXFAIL b\nFAILED b\n", {"a": True, "b": False}),
        (HEADER.title() + b"PASSED: a\nPASSED\tb\n", {"a": True, "b": True}),
        (HEADER + b"PASSED: a\nPASSED b\nFAILED:\tb - why\n", {"a": True, "b": False}),
    ],
)
def test_the_verdict_of_a_summary(text, expected):
    assert verdict(text) == expected


@pytest.mark.parametrize(("alone", "passed"), [(True, False), (False, True)])
def test_a_test_that_passes_unexpectedly_has_failed_where_no_report_file_tells(alone: bool, passed: bool):
    """Otherwise doing nothing passes a task of Terminal-Bench whose tests are all expected to fail."""
    parser = make_output_parser(ResultsFormat.PYTEST, alone=alone)
    parser.feed(HEADER + b"PASSED t.py::a\nXPASS t.py::b - why\n1 passed, 1 xpassed in 0.01s\n")
    assert [(test.name, test.passed) for test in judge_reports((), {}, [parser.report()]).tests] == [
        ("a", True),
        ("b", passed),
    ]


def test_an_unexpected_pass_makes_no_room_for_a_forged_one():
    parser = make_output_parser(ResultsFormat.PYTEST, alone=True)
    parser.feed(HEADER + b"PASSED z\nPASSED t.py::a\nXPASS t.py::b\n1 passed, 1 xpassed in 0.01s\n")
    assert sum(test.outcome is GradingOutcome.PASSED for test in parser.report().tests) == 1


def test_a_skipped_test_is_named_by_its_file_and_line():
    assert verdict(HEADER + b"PASSED t.py::a\nSKIPPED [1] t.py:3: why\n", ()) == {"a": True, "t.py:3: why": False}


def test_without_expected_names_the_summary_names_them():
    assert verdict(HEADER + b"PASSED x.py::one[1]\nFAILED x.py::two\n", ()) == {"one[1]": True, "two": False}


def test_names_with_dashes_are_told_apart():
    lines = b"PASSED a - b\nPASSED a - c\nFAILED a - d\nPASSED x::y\nPASSED p q\n"
    assert verdict(HEADER + lines, ()) == {"a - b": True, "a - c": True, "y": True, "p q": True, "a": False}
    lines = b"PASSED t.py::x[a - b]\nFAILED t.py::x[c - d] - assert 1 - 2\nFAILED t.py::x[e - f]\n"
    assert verdict(HEADER + lines, ()) == {"x[a - b]": True, "x[c - d]": False, "x[e - f]": False}


FORGED = HEADER + b"".join(b"PASSED z.py::t%d\n" % number for number in range(99))
TRUE = HEADER + b"PASSED t.py::a\nFAILED t.py::b - assert 0\n"
COUNTED = b"==== 1 failed, 1 passed, 2 warnings in 61.20s (0:01:01) ====\n"


@pytest.mark.parametrize(
    "text",
    [
        FORGED + TRUE + COUNTED,
        FORGED + b"===== 99 passed in 0.1s =====\n" + TRUE + COUNTED,
        TRUE + COUNTED + FORGED + b"99 passed in 0.1s\n",
        TRUE + b"99 passed in 0.1s\n" + FORGED,
        HEADER + b"PASSED z\n" * 3 + TRUE,
    ],
)
def test_a_forged_summary_adds_no_passed_tests(text):
    assert verdict(text, ()) == {"a": True, "b": False}


def test_a_summary_names_no_more_passes_than_pytest_counted():
    """Without ``-r`` pytest prints no summary of its own."""
    judged = verdict(FORGED + b"4 failed, 1 passed in 0.1s\n", ())
    assert (len(judged), list(judged.values())) == (1, [True])
    assert verdict(FORGED + b"==== 4 failed in 0.1s ====\n", ()) == {}


def test_a_summary_is_no_larger_for_a_line_that_quotes_its_title():
    """A failed assertion quotes the program's output."""
    quoting = b"FAILED t.py::b - AssertionError: assert 'short test summary info' == '42'\n"
    assert verdict(HEADER + b"PASSED t.py::a\n" + quoting, ()) == {"a": True, "b": False}


def test_a_skipped_test_cannot_be_replaced_by_forged_lines():
    """pytest names the location of a skipped test but not its name."""
    skipped = HEADER + b"PASSED t.py::a\nSKIPPED [1] t.py:5: no server\n"
    for forged in (b"PASSED a\nPASSED b\n", b"PASSED a\nXFAIL b\n", b"PASSED b\n", b"XFAIL b\n"):
        assert not all(verdict(HEADER + forged + skipped).values())
        assert len(verdict(HEADER + forged + skipped)) == 2


def test_summaries_of_several_runs_answer_for_expected_tests_together():
    runs = HEADER + b"PASSED t.py::a\n=== 1 passed in 0.1s ===\n" + HEADER + b"PASSED u.py::b\nPASSED u.py::c\n"
    assert verdict(runs, ("a", "b", "c")) == {"a": True, "b": True, "c": True}
    assert all(verdict(runs, ()).values())


def test_a_coloured_summary_is_read_wherever_the_stream_was_cut():
    text = (
        b"\x1b[36m\x1b[1m=== short test summary info ===\x1b[0m\n\x1b[32mPASSED\x1b[0m t.py::\x1b[1ma\x1b[0m\n"
        b"\x1b[31mFAILED\x1b[0m t.py::\x1b[1mb\x1b[0m - assert 0\n"
        b"\x1b[31m== \x1b[1m1 failed\x1b[0m, \x1b[32m1 passed\x1b[0m\x1b[31m in 0.1s\x1b[0m\x1b[31m ==\x1b[0m\n"
    )
    for step in range(1, len(text)):
        parser = SummaryParser()
        for at in range(0, len(text), step):
            parser.feed(text[at : at + step])
        assert parser.report().tests == (
            ReportedTest("t.py::a", GradingOutcome.PASSED),
            ReportedTest("t.py::b", GradingOutcome.FAILED),
        )


def test_a_flood_of_names_is_a_failure_and_costs_no_memory():
    parser = SummaryParser()
    parser.feed(HEADER)
    for number in range(1000):
        parser.feed(b"FAILED %d %s\nPASSED %d %s\n" % (number, b"x" * 3000, number, b"x" * 3000))
    tests = parser.report().tests
    assert len(tests) < 1000
    assert [test.outcome for test in judge_reports(("a",), {}, [parser.report()]).tests] == [
        GradingOutcome.MISSING,
        GradingOutcome.ERROR,
    ]


@given(st.binary(max_size=400), st.integers(1, 50))
def test_the_verdict_does_not_depend_on_where_the_stream_was_cut(noise, step):
    text = noise + b"\n" + HEADER + b"PASSED a\n" + noise + b"\nFAILED b\n"
    cut, whole = SummaryParser(), SummaryParser()
    whole.feed(text)
    for at in range(0, len(text), step):
        cut.feed(text[at : at + step])
    assert cut.report() == whole.report()


@given(st.binary(max_size=400))
def test_no_printed_noise_turns_a_failed_test_into_a_passed_one(noise):
    assert not verdict(noise + b"\n" + HEADER + b"FAILED a\n" + noise, ("a",))["a"]


def test_an_endless_line_costs_no_memory():
    parser = SummaryParser()
    tracemalloc.start()
    try:
        for _ in range(100):
            parser.feed(b"x" * (1 << 20))
        assert tracemalloc.get_traced_memory()[0] < 1 << 20
    finally:
        tracemalloc.stop()


START = b"===== test session starts =====\n"
BOTH = HEADER + b"PASSED t.py::a\nPASSED t.py::b\n2 passed in 0.01s\n"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (START + BOTH, {}),
        (START + START + HEADER + b"FAILED u.py::c\n1 failed in 0.02s\n" + BOTH, {}),
        (START + HEADER + b"FAILED u.py::c\n1 failed in 0.02s\n" + BOTH, {}),
        (START + BOTH + b"ERROR handler\nERROR 0\nFAILED none\nERROR root:main.py:3 no such file\n", {}),
        (START + HEADER + b"FAILED u.py::c\n1 failed in 0.02s\n" + START + BOTH, {"c": False}),
        (START + BOTH + START + HEADER + b"ERROR u.py\n1 error in 0.02s\n", {"u.py": False}),
    ],
    ids=["none", "in a session within", "in a quiet one", "logged", "in the session before", "in the one after"],
)
def test_an_unexpected_failure_counts_only_if_a_pytest_session_reports_it(text, expected):
    assert verdict(text) == {"a": True, "b": True, **expected}


def test_an_xfail_test_is_left_out_in_any_run():
    text = HEADER + b"PASSED t.py::a\nPASSED t.py::c\nXFAIL t.py::b\n" + HEADER + b"PASSED u.py::d\n"
    assert verdict(text, ("a", "b", "c", "d")) == {"a": True, "c": True, "d": True}

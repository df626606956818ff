"""A reward is what the tests said, and silence is not consent."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandbox.grading.outcome import judge
from sandbox.grading.summary import SummaryParser

HEADER = b"=========== short test summary info ===========\n"


def verdict(text: bytes, expected=("a", "b")) -> dict[str, bool]:
    parser = SummaryParser()
    parser.feed(text)
    return {test.name: test.passed for test in judge(expected, {}, [parser.report()]).tests}


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
    ],
)
def test_the_verdict_of_a_summary(text, expected):
    assert verdict(text) == expected


def test_without_expected_names_the_summary_names_them():
    assert verdict(HEADER + b"PASSED x.py::one[1]\nFAILED x.py::two\n", ()) == {"one[1]": True, "two": False}


@given(st.binary(max_size=400), st.integers(1, 50))
def test_the_verdict_does_not_depend_on_where_the_stream_was_cut(noise, step):
    text = noise + b"\n" + HEADER + b"PASSED a\n" + noise + b"\nFAILED b\n"
    cut, whole = SummaryParser(), SummaryParser()
    whole.feed(text)
    for at in range(0, len(text), step):
        cut.feed(text[at : at + step])
    assert cut.report() == whole.report()


@given(st.binary(max_size=400))
def test_nothing_printed_beside_it_turns_a_failed_test_into_a_passed_one(noise):
    assert not verdict(noise + b"\n" + HEADER + b"FAILED a\n" + noise, ("a",))["a"]


def test_an_endless_line_costs_no_memory():
    parser = SummaryParser()
    for _ in range(100):
        parser.feed(b"x" * (1 << 20))
    assert len(parser._line) < 10_000

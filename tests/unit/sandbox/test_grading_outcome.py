"""A reward is the tests' worst word, weighed as the task says: a name spelled two ways, a silent test or a killed run
earns nobody anything."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandbox.grading.outcome import REWARD, Outcome, Report, Reported, contradiction, judge, weighted

P, F, S = Outcome.PASSED, Outcome.FAILED, Outcome.SKIPPED


def report(**tests: Outcome) -> Report:
    return Report(tuple(Reported(name, outcome) for name, outcome in tests.items()))


def outcomes(expected, *reports) -> dict[str, Outcome]:
    return {test.name: test.outcome for test in judge(expected, {}, reports).tests}


def test_an_expected_test_that_did_not_run_has_failed():
    assert outcomes(("a", "b"), report(a=P)) == {"a": P, "b": Outcome.MISSING}


def test_of_two_words_on_one_test_the_worse_counts_whatever_their_order():
    assert outcomes((), report(a=P), report(a=F)) == outcomes((), report(a=F), report(a=P)) == {"a": F}
    assert outcomes(("a",), report(a=S), report(a=P)) == {"a": S}


@pytest.mark.parametrize(
    ("expected", "said"),
    [
        ("test_x", "tests/test_a.py::test_x"),
        ("test_x", "tests.test_a::test_x"),
        ("test_a.py::test_x", "../tests/test_a.py::test_x"),
        ("tests/test_a.py::TestC::test_x[1/2.py::y]", "tests.test_a.TestC::test_x[1/2.py::y]"),
        ("test_a.py::test_x", "test_x"),
    ],
)
def test_one_test_is_known_by_any_of_its_names(expected, said):
    assert outcomes((expected,), Report((Reported(said, P),))) == {expected: P}
    assert judge((said,), {expected: 3.0}, ()).tests[0].weight == 3.0


@pytest.mark.parametrize(
    ("expected", "said"),
    [("test_x", "test_xx"), ("test_x", "my_test_x"), ("a.py::test_x", "b.py::test_x"), ("x[1]", "x[2]")],
)
def test_another_test_is_not_taken_for_it(expected, said):
    assert outcomes((expected,), Report((Reported(said, P),))) == {expected: Outcome.MISSING}


def test_two_tests_of_one_short_name_must_both_pass():
    both = Report((Reported("a.py::test_x", P), Reported("b.py::test_x", F)))
    assert outcomes(("test_x",), both) == {"test_x": F}


def test_without_expected_names_the_first_report_that_has_any_names_them():
    assert outcomes((), Report(reward=1.0), report(a=P), report(a=P, forged=P)) == {"a": P}


def test_a_reward_stands_alone_where_no_test_is_named():
    for value, outcome in ((1.0, P), (0.5, F), (0.0, F)):
        verdict = judge((), {}, [Report(reward=value)])
        assert (verdict.reward, [(test.name, test.outcome) for test in verdict.tests]) == (value, [(REWARD, outcome)])


def test_a_reward_of_one_does_not_stand_for_tests_that_did_not_run():
    assert outcomes(("a",), Report(reward=1.0)) == {"a": Outcome.MISSING}


def test_a_reward_below_one_takes_a_full_pass_back_and_the_lowest_counts():
    assert outcomes(("a",), report(a=P), Report(reward=1.0), Report(reward=0.0)) == {"a": P, REWARD: F}
    assert outcomes(("a", "b"), report(a=P, b=F), Report(reward=0.0)) == {"a": P, "b": F}


def test_weights_weigh():
    tests = judge(("a", "b", "c"), {"a": 0.7, "b": 0.2, "c": 0.1}, [report(a=P, b=F, c=P)]).tests
    assert weighted(tests) == pytest.approx(0.8)
    assert weighted(()) == 0.0
    assert [(test.result.passed, test.result.weight) for test in tests] == [(True, 0.7), (False, 0.2), (True, 0.1)]


@pytest.mark.parametrize(
    ("code", "signalled", "reports", "why"),
    [
        (0, False, [report(a=P)], ""),
        (0, False, [report(a=F)], ""),
        (1, False, [report(a=P, b=F)], ""),
        (1, False, [report(a=P), Report(reward=0.0)], ""),
        (1, False, [report(b=P)], ""),
        (5, False, [report(a=S)], ""),
        (3, False, [], ""),
        (9, True, [report(a=P, b=F)], "killed"),
        (137, False, [report(a=P, b=F)], "killed"),
        (1, False, [report(a=P)], "exited 1"),
        (1, False, [report(a=P, b=S)], "exited 1"),
    ],
)
def test_an_end_that_contradicts_the_words_takes_them_back(code, signalled, reports, why):
    said = contradiction(code, signalled, judge(("a",), {}, reports).tests, reports)
    assert why in said
    assert bool(why) == bool(said)


@given(st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from(Outcome)), max_size=20), st.sampled_from("abc"))
def test_whatever_is_added_a_failed_test_stays_failed(noise, name):
    added = Report(tuple(Reported(*each) for each in noise))
    assert outcomes((name,), added, Report((Reported(name, F),)))[name] in (F, Outcome.ERROR)

"""If these fail, a test with two spellings, a silent test or a killed run earns a reward."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandbox.grading.results.verdict import (
    REWARD_TEST,
    GradingOutcome,
    GradingReport,
    ReportedTest,
    find_contradiction,
    judge_reports,
    weighted_score,
)

P, F, S = GradingOutcome.PASSED, GradingOutcome.FAILED, GradingOutcome.SKIPPED


def report(**tests: GradingOutcome) -> GradingReport:
    return GradingReport(tuple(ReportedTest(name, outcome) for name, outcome in tests.items()))


def outcomes(expected, *reports) -> dict[str, GradingOutcome]:
    return {test.name: test.outcome for test in judge_reports(expected, {}, reports).tests}


def test_an_expected_test_that_did_not_run_has_failed():
    assert outcomes(("a", "b"), report(a=P)) == {"a": P, "b": GradingOutcome.MISSING}


def test_an_unexpected_failed_test_counts():
    """Otherwise failing it would score 1: the exit of the tests' script contradicts nothing."""
    extra = ReportedTest("t/test_b.py::test_b", F)
    verdict = judge_reports(
        ("a",), {"a": 3.0}, [report(a=P), GradingReport((extra, ReportedTest("test_b", GradingOutcome.ERROR)))]
    )
    assert [(test.name, test.outcome, test.weight) for test in verdict.tests] == [
        ("a", P, 3.0),
        ("test_b", GradingOutcome.ERROR, 1.0),
    ]
    assert outcomes((), report(a=P), GradingReport((extra,))) == {"a": P, "test_b": F}
    assert outcomes(("a",), report(a=P, b=P, c=S)) == {"a": P}
    assert outcomes(("a",), GradingReport((ReportedTest("a", P), ReportedTest("adds numbers", F)))) == {
        "a": P,
        "adds numbers": F,
    }


def test_only_a_tests_author_can_expect_it_to_fail():
    """An agent's own code can raise pytest's xfail where tests run it."""
    reports = [report(a=P, b=GradingOutcome.XFAILED)]
    assert [test.name for test in judge_reports(("a", "b"), {}, reports).tests] == ["a"]
    verdict = judge_reports(("a", "b"), {}, reports, xfails=False)
    assert {test.name: test.passed for test in verdict.tests} == {"a": True, "b": False}


def test_the_worse_of_two_outcomes_of_a_test_counts_in_either_order():
    assert outcomes((), report(a=P), report(a=F)) == outcomes((), report(a=F), report(a=P)) == {"a": F}
    assert outcomes(("a",), report(a=S), report(a=P)) == {"a": S}


@pytest.mark.parametrize(
    ("expected", "reported"),
    [
        ("test_x", "tests/test_a.py::test_x"),
        ("test_x", "tests.test_a::test_x"),
        ("test_a.py::test_x", "../tests/test_a.py::test_x"),
        ("tests/test_a.py::TestC::test_x[1/2.py::y]", "tests.test_a.TestC::test_x[1/2.py::y]"),
        ("test_a.py::test_x", "test_x"),
    ],
)
def test_one_test_is_known_by_any_of_its_names(expected, reported):
    assert outcomes((expected,), GradingReport((ReportedTest(reported, P),))) == {expected: P}
    assert judge_reports((reported,), {expected: 3.0}, ()).tests[0].weight == 3.0


@pytest.mark.parametrize(
    ("expected", "reported"),
    [("test_x", "test_xx"), ("test_x", "my_test_x"), ("a.py::test_x", "b.py::test_x"), ("x[1]", "x[2]")],
)
def test_a_test_with_a_similar_name_is_not_matched(expected, reported):
    assert outcomes((expected,), GradingReport((ReportedTest(reported, P),))) == {expected: GradingOutcome.MISSING}


@pytest.mark.parametrize(
    ("expected", "reported", "meant"),
    [
        (("test_x", "TestA::test_x"), "t.py::TestA::test_x", "TestA::test_x"),
        (("test_x", "TestA::test_x"), "t.py::test_x", "test_x"),
        (("test_x", "TestA::test_x"), "test_x", "test_x"),
        (("t.py::test_x", "t.py::TestA::test_x"), "test_x", "t.py::test_x"),
        (("test_x", "t.py::TestA::test_x"), "TestA::test_x", "t.py::TestA::test_x"),
        (("x", "x[1]"), "t.py::x[1]", "x[1]"),
        (("x", "x[1]"), "t.py::x[2]", "x"),
    ],
)
def test_a_pass_counts_only_for_the_best_matching_expected_test(expected, reported, meant):
    assert outcomes(expected, GradingReport((ReportedTest(reported, P),))) == {
        name: P if name == meant else GradingOutcome.MISSING for name in expected
    }


def test_a_weight_applies_only_to_the_exactly_named_test():
    own = judge_reports(("test_x", "TestA::test_x"), {"TestA::test_x": 0.1, "test_x": 0.9}, ())
    assert [test.weight for test in own.tests] == [0.9, 0.1]
    assert [test.weight for test in judge_reports(("test_x", "TestA::test_x"), {"TestA::test_x": 0.1}, ()).tests] == [
        1.0,
        0.1,
    ]


def test_an_expected_name_stands_for_all_of_its_parameters():
    one, two = ReportedTest("t.py::test_x[1]", P), ReportedTest("t.py::test_x[2]", P)
    assert outcomes(("test_x",), GradingReport((one, two))) == {"test_x": P}
    assert outcomes(("test_x",), GradingReport((one, two._replace(outcome=F)))) == {"test_x": F}


def test_a_report_without_parameters_does_not_fail_a_test_twice():
    """The verifier's CTRF plugin drops them from its names."""
    ctrf = GradingReport((ReportedTest("t.py::test_x", P), ReportedTest("t.py::test_x", F)))
    stream = GradingReport((ReportedTest("t.py::test_x[1]", P), ReportedTest("t.py::test_x[2]", F)))
    assert outcomes(("test_x[1]", "test_x[2]"), ctrf, stream) == {"test_x[1]": P, "test_x[2]": F}
    assert outcomes(("test_x[1]",), ctrf, report(**{"test_x[1]": P})) == {"test_x[1]": P, "test_x": F}


def test_two_tests_with_the_same_short_name_must_both_pass():
    both = GradingReport((ReportedTest("a.py::test_x", P), ReportedTest("b.py::test_x", F)))
    assert outcomes(("test_x",), both) == {"test_x": F}


def test_without_expected_names_the_first_report_with_tests_names_them():
    assert outcomes((), GradingReport(rewards={"reward": 1.0}), report(a=P), report(a=P, forged=P)) == {"a": P}


def test_a_reward_without_named_tests_is_the_verdict():
    for value, outcome in ((2.0, P), (1.0, P), (0.5, F), (-1.0, F)):
        verdict = judge_reports(
            (), {}, [GradingReport(rewards={"reward": value}), GradingReport(rewards={"reward": 7.0})]
        )
        assert (verdict.rewards, [(test.name, test.outcome) for test in verdict.tests]) == (
            {"reward": value},
            [(REWARD_TEST, outcome)],
        )


def test_a_reward_of_one_does_not_replace_tests_that_did_not_run():
    assert outcomes(("a",), GradingReport(rewards={"reward": 1.0})) == {"a": GradingOutcome.MISSING}


def test_a_reward_below_one_revokes_a_full_pass():
    assert outcomes(("a",), report(a=P), GradingReport(rewards={"reward": 0.5})) == {"a": P, REWARD_TEST: F}
    assert outcomes(("a", "b"), report(a=P, b=F), GradingReport(rewards={"reward": 0.0})) == {"a": P, "b": F}


def test_the_score_is_weighted():
    tests = judge_reports(("a", "b", "c"), {"a": 0.7, "b": 0.2, "c": 0.1}, [report(a=P, b=F, c=P)]).tests
    assert weighted_score(tests) == pytest.approx(0.8)
    assert weighted_score(()) == 0.0
    assert [(test.result.passed, test.result.weight) for test in tests] == [(True, 0.7), (False, 0.2), (True, 0.1)]


@pytest.mark.parametrize(
    ("code", "signalled", "reports", "why"),
    [
        (0, False, [report(a=P)], ""),
        (0, False, [report(a=F)], ""),
        (1, False, [report(a=P, b=F)], ""),
        (1, False, [report(a=P), GradingReport(rewards={"reward": 0.0})], ""),
        (1, False, [report(b=P)], ""),
        (5, False, [report(a=S)], ""),
        (3, False, [], ""),
        (9, True, [report(a=P, b=F)], "killed"),
        (137, False, [report(a=P, b=F)], "killed"),
        (1, False, [report(a=P), GradingReport(rewards={"reward": 1.0})], ""),
        (137, False, [report(a=P), GradingReport(rewards={"reward": 1.0})], "killed"),
        (1, False, [report(a=P)], "exited with 1"),
        (1, False, [report(a=P, b=S)], "exited with 1"),
    ],
)
def test_an_exit_that_contradicts_the_reports_is_reported(code, signalled, reports, why):
    reported = find_contradiction(code, signalled, judge_reports(("a",), {}, reports))
    assert why in reported
    assert bool(why) == bool(reported)


@given(
    st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from(GradingOutcome)), max_size=20), st.sampled_from("abc")
)
def test_a_failed_test_stays_failed_with_any_additional_reports(noise, name):
    added = GradingReport(tuple(ReportedTest(*each) for each in noise))
    assert outcomes((name,), added, GradingReport((ReportedTest(name, F),)))[name] in (F, GradingOutcome.ERROR)

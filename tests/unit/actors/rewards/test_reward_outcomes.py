"""Each formula by its table: if one fails, a run is trained for something else than its document says."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors.rewards.episode_result import EpisodeResult, ModelTurn, ToolCallRecord
from actors.rewards.process_rules import MALFORMED_RULE, RULES
from actors.rewards.registry import find_outcome_reward, list_outcome_rewards
from launch.config.tables import RolloutTable
from protocol.errors import UserError
from protocol.trajectory import EpisodeStatus, TestResult


def played(passed: int, test_count: int, calls: tuple[int, ...] = (), weights: tuple[float, ...] = ()) -> EpisodeResult:
    """``passed`` of so many tests passed, the first ones; ``calls`` of tools turn by turn."""
    tests = tuple(TestResult(f"t{n}", n < passed, weights[n] if weights else 1.0) for n in range(test_count))
    whole = sum(test.weight for test in tests)
    return EpisodeResult(
        instruction="do it",
        status=EpisodeStatus.COMPLETED,
        tests=tests,
        pass_ratio=passed / test_count if test_count else 0.0,
        all_passed=0 < test_count == passed,
        score=sum(test.weight for test in tests if test.passed) / whole if whole else 0.0,
        turns=tuple(ModelTurn("", (ToolCallRecord("shell_exec", "ls"),) * number) for number in calls),
    )


NONE, SOME, HALF, MOST, ALL = played(0, 4), played(1, 4), played(2, 4), played(3, 4), played(4, 4)


@pytest.mark.parametrize(
    ("name", "bonus", "totals"),
    [
        ("binary", None, (0.0, 0.0, 0.0, 0.0, 1.0)),
        ("pass_ratio", None, (0.0, 0.25, 0.5, 0.75, 1.0)),
        ("pass_ratio_with_bonus", 0.5, (0.0, 0.25, 0.5, 0.75, 1.5)),  # SETA's card
        ("pass_ratio_with_bonus", 1.0, (0.0, 0.25, 0.5, 0.75, 2.0)),  # SETA's code
        ("signed_pass_ratio", None, (-1.0, -0.5, 0.0, 0.5, 1.0)),  # OpenClaw
        ("weighted_tests", None, (0.0, 0.25, 0.5, 0.75, 1.0)),
        ("art", None, (0.0, 0.125, 0.25, 0.375, 1.0)),
        ("tcr", None, (-1.0, -1.0, -1.0, -1.0, 1.0)),
    ],
)
def test_each_reward_has_its_total_for_every_number_of_passed_tests(
    name: str, bonus: float | None, totals: tuple[float, ...]
) -> None:
    formula = find_outcome_reward(name, bonus).formula
    assert tuple(formula(each).total for each in (NONE, SOME, HALF, MOST, ALL)) == totals


@pytest.mark.parametrize(
    ("calls", "total"), [(0, -1.0), (1, -0.9), (2, -0.8), (3, -0.7), (4, -0.6), (5, -0.6), (40, -0.6)]
)
def test_a_wrong_answer_earns_more_for_each_tool_call_up_to_four(calls: int, total: float) -> None:
    """GRPO-TCR: min(−0.6, −1 + 0.1 · tool calls), to the bit; its released code always gave −1.1."""
    reward = find_outcome_reward("tcr").formula(played(0, 1, calls=(1,) * calls))
    assert reward.total == total
    assert reward.parts["tool_calls"] == pytest.approx(total + 1)


def test_a_right_answer_is_worth_one_however_many_calls_it_took() -> None:
    assert [find_outcome_reward("tcr").formula(played(1, 1, calls=(n,))).total for n in (0, 9)] == [1.0, 1.0]


def test_calls_are_counted_over_all_turns() -> None:
    assert find_outcome_reward("tcr").formula(played(0, 1, calls=(2, 0, 1))).total == -0.7


@pytest.mark.parametrize(
    ("calls", "penalty"),
    [((), 0.0), ((5, 5), 0.0), ((6,), 0.05), ((1, 7, 2), 0.1), ((8,), 0.15), ((9,), 0.2), ((30,), 0.2)],
)
def test_many_calls_in_one_turn_are_penalised(calls: tuple[int, ...], penalty: float) -> None:
    """SETA: min(0.05 · max(0, m − 5), 0.2) off the reward with bonus, m of the turn with the most."""
    formula = find_outcome_reward("pass_ratio_parallel_penalty", 1.0).formula
    for passed, whole in ((4, 2.0), (2, 0.5)):
        reward = formula(played(passed, 4, calls))
        assert reward.total == pytest.approx(whole - penalty)
        assert reward.parts["parallel_penalty"] == pytest.approx(-penalty)


def test_tests_have_the_weights_of_the_task() -> None:
    formula = find_outcome_reward("weighted_tests").formula
    heavy_first = played(1, 2, weights=(3.0, 1.0))
    assert (formula(heavy_first).total, heavy_first.pass_ratio) == (0.75, 0.5)
    assert formula(played(0, 2, weights=(3.0, 1.0))).total == 0.0
    idle_failed = played(1, 2, weights=(1.0, 0.0))
    assert formula(idle_failed).total == 1.0
    assert formula(idle_failed).parts["all_passed"] == 0.0, "a full score is no pass"


def test_an_episode_without_tests_gets_a_failed_episodes_reward() -> None:
    """None failed either, but nothing was shown."""
    for name in list_outcome_rewards():
        bonus = 0.5 if "bonus" in name or "parallel" in name else None
        formula = find_outcome_reward(name, bonus).formula
        assert formula(played(0, 0)).total == formula(NONE).total
        assert formula(played(0, 0)).parts["all_passed"] == 0.0


@given(
    st.sampled_from(list_outcome_rewards()),
    st.integers(0, 6),
    st.integers(1, 6),
    st.lists(st.integers(0, 12), max_size=5).map(tuple),
)
def test_a_pass_is_recorded_separately_and_exceeds_a_failure_by_its_margin(
    name: str, passed: int, of: int, calls: tuple[int, ...]
) -> None:
    """Process rules are bounded by that margin, so that no failed episode is worth more than a full pass."""
    bonus = 0.5 if "bonus" in name or "parallel" in name else None
    found = find_outcome_reward(name, bonus)
    reward, whole = (found.formula(played(min(each, of), of, calls)) for each in (passed, of))
    assert reward.parts["all_passed"] == float(passed >= of)
    assert whole.parts["all_passed"] == 1.0
    if passed < of:
        for wide in ((), (12,)):
            least = found.formula(played(of, of, wide)).total
            assert least - reward.total >= found.pass_margin - 1e-9


@pytest.mark.parametrize(
    ("name", "bonus", "says"),
    [
        ("pass_ratio_with_bonus", None, "set reward.bonus = 0.5, as SETA's model card says, or 1.0"),
        ("pass_ratio_parallel_penalty", None, "set reward.bonus = 0.5"),
        ("binary", 0.5, "leave it out, or set rollout.reward = 'pass_ratio_with_bonus'"),
        ("pass_ration", None, "did you mean 'pass_ratio'?"),
        ("", None, "is none of binary, pass_ratio"),
    ],
)
def test_an_unknown_reward_name_or_an_unused_bonus_is_refused(name: str, bonus: float | None, says: str) -> None:
    with pytest.raises(UserError) as caught:
        find_outcome_reward(name, bonus)
    assert says in str(caught.value)


def test_the_documents_and_the_help_text_name_every_reward_and_rule() -> None:
    table = (Path(__file__).parents[4] / "docs" / "rewards.md").read_text()
    rules = [rule.name for rule in (*RULES, MALFORMED_RULE)]
    assert [name for name in (*list_outcome_rewards(), *rules) if f"| `{name}` |" not in table] == []
    help_text = RolloutTable.model_fields["reward"].description or ""
    assert [name for name in list_outcome_rewards() if f"``{name}``" not in help_text] == []

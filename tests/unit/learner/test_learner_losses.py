"""The loss and its metrics against an independent computation in plain Python."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from learner.corrections import truncated_importance_weights
from learner.losses import Clip, likelihood_loss, policy_loss, summarise

CLIP = Clip(0.2, 0.28, 3.0)


def plain_objective(ratio: float, advantage: float) -> float:
    """What one token adds, and the slope of it in log π, from the definition in words."""
    if advantage >= 0:
        return min(ratio, 1.28) * advantage
    return min(max(ratio, 0.8), 3.0) * advantage


def run(gaps, advantages, denominator=None, **options):
    behaviour = torch.linspace(-3, -1, len(gaps))
    logprobs = (behaviour + torch.tensor(gaps)).requires_grad_()
    result = policy_loss(
        logprobs, behaviour, torch.tensor(advantages), denominator=denominator or len(gaps), clip=CLIP, **options
    )
    result.loss.backward()
    return result, logprobs.grad


@given(
    st.lists(st.tuples(st.floats(-3, 3, width=32), st.floats(-2, 2, width=32)), min_size=1, max_size=20),
    st.integers(1, 50),
)
def test_loss_is_the_definition(tokens, denominator):
    result, _ = run([gap for gap, _ in tokens], [advantage for _, advantage in tokens], denominator)
    expected = -sum(plain_objective(math.exp(gap), advantage) for gap, advantage in tokens) / denominator
    assert result.loss.item() == pytest.approx(expected, rel=1e-3, abs=1e-4)


CORNERS = [
    # ratio, advantage, does it still learn, which metric counts it
    (1.0, 1.0, True, None),
    (1.27, 1.0, True, None),
    (1.29, 1.0, False, "clip_high"),
    (0.5, 1.0, True, None),
    (1.0, -1.0, True, None),
    (0.81, -1.0, True, None),
    (0.79, -1.0, False, "clip_low"),
    (1.5, -1.0, True, None),
    (2.9, -1.0, True, None),
    (3.1, -1.0, False, "clip_dual"),
]


@pytest.mark.parametrize(("ratio", "advantage", "learns", "metric"), CORNERS)
def test_corners(ratio, advantage, learns, metric):
    """Where a bound holds, the token has no gradient and its metric says so; nowhere else."""
    result, grad = run([math.log(ratio)], [advantage])
    assert grad.item() == pytest.approx(-ratio * advantage if learns else 0.0, rel=1e-4)
    metrics = summarise(result.sums, 0.0)
    assert {name for name in ("clip_high", "clip_low", "clip_dual") if metrics[name]} == ({metric} if metric else set())


def test_masked_tokens_stay_in_the_denominator():
    """Taking the loss from stale tokens must not give more of it to the others."""
    alone, grad_alone = run([0.1, -0.1], [1.0, -1.0], denominator=2)
    among_stale, grad = run([0.1, -0.1], [1.0, -1.0], denominator=10)
    assert among_stale.loss.item() == pytest.approx(alone.loss.item() / 5)
    torch.testing.assert_close(grad, grad_alone / 5)


def test_micro_batches_add_up():
    gaps, advantages = [0.3, -0.5, 1.4, 0.0], [1.0, -1.0, -0.5, 2.0]
    entropy = torch.tensor([1.0, 2.0, 3.0, 4.0])
    whole = run(gaps, advantages, 9, entropy_N=entropy)[0]
    parts = [run(gaps[part], advantages[part], 9, entropy_N=entropy[part])[0] for part in (slice(0, 3), slice(3, 4))]
    together = summarise(parts[0].sums + parts[1].sums, 0.0)
    assert together == pytest.approx(summarise(whole.sums, 0.0), rel=1e-5)
    assert together["entropy"] == pytest.approx(2.5)


def test_metrics_are_their_formulas():
    gaps = [0.3, -0.5, 0.1]
    result, _ = run(gaps, [1.0, 1.0, 1.0])
    metrics = summarise(result.sums, float(result.mismatch_max))
    ratios = [math.exp(gap) for gap in gaps]
    assert metrics["kl_k1"] == pytest.approx(-sum(gaps) / 3, rel=1e-4)
    assert metrics["kl_k3"] == pytest.approx(sum(math.exp(g) - 1 - g for g in gaps) / 3, rel=1e-4)
    assert metrics["ess"] == pytest.approx(sum(ratios) ** 2 / (3 * sum(r * r for r in ratios)), rel=1e-4)
    assert metrics["mismatch_max"] == pytest.approx(0.5, rel=1e-4)


def test_no_tokens_is_no_loss():
    """A rank without a share still takes part in the step."""
    result, grad = run([], [], denominator=5)
    assert result.loss.item() == 0
    assert result.mismatch_max.item() == 0
    assert len(grad) == 0
    assert summarise(result.sums, 0.0)["ess"] == 0


def test_a_huge_mismatch_stays_finite():
    """A log-probability of -100 against 0 happens when an engine and the learner disagree: it must be seen, not NaN."""
    result, grad = run([100.0, -100.0], [1.0, -1.0])
    assert torch.isfinite(result.loss)
    assert torch.isfinite(grad).all()
    assert result.mismatch_max.item() == pytest.approx(100, rel=1e-3)


def test_truncated_importance_sampling_weights_a_plain_gradient():
    gaps, advantages = [math.log(0.5), math.log(5.0)], [1.0, -2.0]
    _, grad = run(gaps, advantages, denominator=2, tis_cap=2.0)
    torch.testing.assert_close(grad, torch.tensor([-0.5 * 1.0 / 2, 2.0 * 2.0 / 2]), rtol=1e-4, atol=1e-6)


def test_truncated_weights_have_no_gradient():
    current = torch.tensor([0.0, 1.0], requires_grad=True)
    weights = truncated_importance_weights(current, torch.zeros(2), cap=2.0)
    assert not weights.requires_grad
    torch.testing.assert_close(weights, torch.tensor([1.0, 2.0]))


def test_likelihood_loss_is_the_mean_over_the_global_batch():
    logprobs = torch.tensor([-1.0, -3.0], requires_grad=True)
    result = likelihood_loss(logprobs, denominator=8)
    result.loss.backward()
    assert result.loss.item() == 0.5
    assert logprobs.grad.tolist() == [-0.125, -0.125]
    assert result.sums[:2].tolist() == [0.5, 2]

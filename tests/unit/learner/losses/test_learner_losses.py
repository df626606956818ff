"""Every loss, with and without each correction, against a float64 computation from the papers' formulas."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from loss_reference import gradient_of, loss_of

from learner.losses.metrics import MetricSums, summarise_metrics
from learner.losses.policy_loss import likelihood_loss, policy_loss
from learner.losses.settings import CorrectionSettings, KlPenaltySettings
from learner.losses.token_columns import TokenColumns
from tests.support.runs.learner_specs import make_objective

LOSSES = {
    "clip": make_objective(),
    "gspo": make_objective(loss="gspo", eps_low=0.05, eps_high=0.08),
    "cispo": make_objective(loss="cispo"),
    "dppo_tv": make_objective(loss="dppo_tv", tv_bound=0.1),
    "reinforce": make_objective(loss="reinforce", tis_cap=1.5),
}
CORRECTED = {
    "band": make_objective(corrections=CorrectionSettings(band=(0.6, 1.6))),
    "gspo, band": make_objective(loss="gspo", corrections=CorrectionSettings(band=(0.6, 1.6))),
    "opsm": make_objective(corrections=CorrectionSettings(opsm=0.02)),
    "m2po": make_objective(corrections=CorrectionSettings(m2po=0.04)),
    "recomputed": make_objective(minibatches=2, corrections=CorrectionSettings(proximal="recomputed", cap=1.2)),
    "recomputed, band": make_objective(
        minibatches=2, corrections=CorrectionSettings(proximal="recomputed", band=(0.7, 1.5))
    ),
    "gspo, recomputed": make_objective(
        loss="gspo", minibatches=2, corrections=CorrectionSettings(proximal="recomputed")
    ),
    "cispo, recomputed": make_objective(
        loss="cispo", minibatches=2, corrections=CorrectionSettings(proximal="recomputed")
    ),
    "log-linear": make_objective(corrections=CorrectionSettings(proximal="log_linear", cap=1.1)),
    "k2": make_objective(kl=KlPenaltySettings(coefficient=0.3, estimator="k2")),
    "k3": make_objective(kl=KlPenaltySettings(coefficient=0.3, estimator="k3")),
}
EVERY = LOSSES | CORRECTED


def random_case(seed: int = 0, sequences: int = 6):
    rng = np.random.default_rng(seed)
    made = []
    for _ in range(sequences):
        sign = rng.choice([-1.0, 1.0])
        made.append([])
        for _ in range(int(rng.integers(1, 7))):
            behaviour = float(rng.uniform(-3, -0.1))
            current = behaviour + float(rng.normal(0, 0.4))
            made[-1].append(
                {
                    "behaviour": behaviour,
                    "current": current,
                    "stopped": current,
                    "advantage": sign * float(rng.uniform(0.1, 2)),
                    "weight": float(rng.uniform(0.01, 0.1)),
                    "staleness": int(rng.integers(0, 4)),
                    "proximal": behaviour + float(rng.normal(0, 0.3)),
                    "reference": behaviour + float(rng.normal(0, 0.5)),
                    "keep": bool(rng.random() < 0.8),
                }
            )
    return made


def without(case, *names):
    return [[{name: value for name, value in token.items() if name not in names} for token in own] for own in case]


def for_objective(case, objective):
    """Columns that the objective does not ask for are not there."""
    gone = [] if objective.corrections.m2po is not None else ["keep"]
    gone += [] if objective.kl.coefficient else ["reference"]
    return without(case, *gone)


def column(case, name, dtype=torch.float64):
    values = [token[name] for sequence in case for token in sequence if name in token]
    return torch.tensor(values, dtype=dtype) if values or name != "keep" else None


def columns_of(case) -> TokenColumns:
    optional = {
        name: column(case, name) for name in ("proximal", "reference") if any(name in t for s in case for t in s)
    }
    if any("keep" in token for sequence in case for token in sequence):
        optional["keep"] = column(case, "keep", torch.bool)
    return TokenColumns(
        behaviour=column(case, "behaviour"),
        advantages=column(case, "advantage"),
        weights=column(case, "weight"),
        staleness=column(case, "staleness", torch.int32),
        sequence=torch.tensor([at for at, own in enumerate(case) for _ in own], dtype=torch.int64),
        **optional,
    )


def run(case, objective, entropy=None):
    current = column(case, "current").requires_grad_()
    result = policy_loss(current, columns_of(case), objective, entropy)
    result.loss.backward()
    return result, current.grad


def one(gap, advantage, objective=LOSSES["clip"], **more):
    token = {"behaviour": -1.0, "current": -1.0 + gap, "stopped": -1.0 + gap, "advantage": advantage, "weight": 1.0}
    return run([[{**token, "staleness": 0, **more}]], objective)


@pytest.mark.parametrize("name", EVERY)
@pytest.mark.parametrize("seed", range(4))
def test_loss_and_gradient_equal_the_published_formulas(name, seed):
    """Otherwise a run would not use the algorithm that its recipe names."""
    case = for_objective(random_case(seed), EVERY[name])
    result, grad = run(case, EVERY[name])
    assert result.loss.item() == pytest.approx(loss_of(case, EVERY[name]), rel=1e-12)
    np.testing.assert_allclose(grad.numpy(), gradient_of(case, EVERY[name]), atol=2e-8)


@pytest.mark.parametrize("name", EVERY)
def test_every_correction_takes_effect_in_the_random_cases(name):
    """A case in which a bound never holds would say nothing about it."""
    cases = [for_objective(random_case(seed), EVERY[name]) for seed in range(4)]
    plain = make_objective(loss=EVERY[name].policy_loss.loss, tis_cap=EVERY[name].policy_loss.tis_cap)
    loose = make_objective(
        loss=plain.policy_loss.loss,
        eps_low=0.99,
        eps_high=50,
        dual_clip=60,
        tv_bound=0.99,
        tis_cap=plain.policy_loss.tis_cap and 60.0,
    )
    against = loose if name in LOSSES else plain
    if name in LOSSES:
        assert any((run(case, EVERY[name])[1] != run(case, loose)[1]).any() for case in cases)
    else:
        bare = [without(case, "keep", "reference") for case in cases]
        assert any(run(a, EVERY[name])[0].loss != run(b, against)[0].loss for a, b in zip(cases, bare, strict=True))


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


@pytest.mark.parametrize("loss", ["clip", "gspo"])
@pytest.mark.parametrize(("ratio", "advantage", "learns", "metric"), CORNERS)
def test_clip_corners(loss, ratio, advantage, learns, metric):
    """A token has no gradient, and is counted as clipped, exactly where a bound holds."""
    objective = make_objective(loss=loss)
    result, grad = one(math.log(ratio), advantage, objective)
    assert grad.item() == pytest.approx(-ratio * advantage if learns else 0.0, rel=1e-9)
    metrics = summarise_metrics(result.sums, objective)
    assert {name for name in ("clip_high", "clip_low", "clip_dual") if metrics[name]} == ({metric} if metric else set())


@pytest.mark.parametrize("name", EVERY)
@pytest.mark.parametrize("gap", [100.0, -100.0, 1e30, -1e30])
@pytest.mark.parametrize("advantage", [1.0, -1.0])
def test_a_ratio_that_overflows_stays_finite(name, gap, advantage):
    """An engine and a learner that disagree without bound must be seen, not NaN."""
    objective, token = EVERY[name], {"behaviour": -1.0 - gap, "current": -1.0, "stopped": -1.0}
    case = [
        [
            {
                **token,
                "advantage": advantage,
                "weight": 1.0,
                "staleness": 1,
                "proximal": -1.0,
                "reference": -1.0,
                "keep": True,
            }
        ]
    ]
    result, grad = run(for_objective(case, objective), objective)
    assert torch.isfinite(result.loss)
    assert torch.isfinite(grad).all()
    assert result.sums.largest.item() == abs(gap)


@pytest.mark.parametrize("name", EVERY)
def test_all_masked_is_no_gradient(name):
    case = [[{**token, "keep": False} for token in own] for own in without(random_case(), "reference")]
    result, grad = run(case, EVERY[name])
    assert result.loss.item() == 0
    assert not grad.any()
    assert result.sums.totals.isfinite().all()


def test_all_clipped_is_no_gradient():
    case = [
        [{**t, "advantage": 1.0, "current": t["behaviour"] + 1, "stopped": 0.0} for t in own] for own in random_case()
    ]
    _, grad = run(without(case, "keep", "reference"), LOSSES["clip"])
    assert not grad.any()


@pytest.mark.parametrize("name", EVERY)
def test_no_tokens_is_no_loss(name):
    """A rank without a share still takes part in the step."""
    empty = torch.zeros(0, dtype=torch.float64)
    current = empty.clone().requires_grad_()
    whole = TokenColumns(
        empty, empty, empty, empty.int(), empty.long(), proximal=empty, reference=empty, keep=empty.bool()
    )
    result = policy_loss(current, whole, EVERY[name], empty)
    result.loss.backward()
    assert result.loss.item() == 0
    assert not result.sums.totals.any()
    assert summarise_metrics(result.sums, EVERY[name])["ess"] == 0


def test_a_mask_gives_no_weight_to_the_other_tokens():
    """Taking the loss from some tokens must not give more of it to others."""
    case = without(random_case(), "keep", "reference")
    masked = [[{**token, "keep": at > 0} for at, token in enumerate(own)] for own in case]
    objective = LOSSES["clip"]
    _, before = run(case, objective)
    _, after = run(masked, objective)
    kept = torch.tensor([at > 0 for own in case for at, _ in enumerate(own)])
    torch.testing.assert_close(after[kept], before[kept])
    assert not after[~kept].any()


def test_a_masked_token_is_not_counted_as_clipped():
    """Its gradient is gone for another reason."""
    result, _ = one(1.0, 1.0, make_objective(corrections=CorrectionSettings(m2po=0.04)), keep=False)
    metrics = summarise_metrics(result.sums, make_objective(corrections=CorrectionSettings(m2po=0.04)))
    assert (metrics["clip_high"], metrics["masked_m2po"]) == (0, 1)


@pytest.mark.parametrize("staleness", [0, 1, 3])
def test_the_proximal_policy_moves_with_staleness(staleness):
    """At staleness 0 the log-linear approximation is the behaviour policy: the plain clipped ratio, weight 1."""
    objective = CORRECTED["log-linear"]
    _, plain = one(0.2, 1.0)
    _, grad = one(0.2, 1.0, objective, staleness=staleness)
    weight = math.exp(0.2 * staleness / (staleness + 1))
    expected = math.exp(0.2 / (staleness + 1)) * min(weight, objective.corrections.cap)
    assert grad.item() == pytest.approx(-expected, rel=1e-9)
    if staleness == 0:
        assert grad.item() == plain.item()


def test_the_k1_penalty_has_the_gradient_of_its_expectation():
    """log π's own gradient has expectation 0: a penalty with it would be noise.  Summed over the vocabulary, k1's is
    that of KL(π‖ref)."""
    logits = torch.tensor([0.3, -0.5, 1.1], dtype=torch.float64, requires_grad=True)
    reference = torch.tensor([0.1, 0.4, -0.2], dtype=torch.float64).log_softmax(-1)
    current = logits.log_softmax(-1)
    (exact,) = torch.autograd.grad((current.exp() * (current - reference)).sum(), logits, retain_graph=True)
    tokens = TokenColumns(
        behaviour=current.detach(),
        advantages=torch.zeros(3, dtype=torch.float64),
        weights=current.detach().exp(),
        staleness=torch.zeros(3, dtype=torch.int32),
        sequence=torch.arange(3),
        reference=reference,
    )
    for kind in ("k1", "k2"):
        loss = policy_loss(current, tokens, make_objective(kl=KlPenaltySettings(coefficient=1.0, estimator=kind))).loss
        (found,) = torch.autograd.grad(loss, logits, retain_graph=True)
        torch.testing.assert_close(found, exact)
    value = policy_loss(current, tokens, make_objective(kl=KlPenaltySettings(coefficient=1.0, estimator="k1"))).loss
    torch.testing.assert_close(value, (current.exp() * (current - reference)).sum())


@pytest.mark.parametrize("name", EVERY)
def test_micro_batches_add_up(name):
    """A sequence is never split; everything else may be."""
    case = for_objective(random_case(3), EVERY[name])
    entropy = torch.rand(sum(map(len, case)), dtype=torch.float64)
    first = sum(map(len, case[:2]))
    whole, _ = run(case, EVERY[name], entropy)
    parts = [run(case[:2], EVERY[name], entropy[:first])[0], run(case[2:], EVERY[name], entropy[first:])[0]]
    together = parts[0].sums.add(parts[1].sums)
    torch.testing.assert_close(together.totals, whole.sums.totals)
    torch.testing.assert_close(together.largest, whole.sums.largest)
    assert sum(part.loss.item() for part in parts) == pytest.approx(whole.loss.item())


def test_metrics_are_their_formulas():
    case = random_case(1)
    objective = make_objective(
        corrections=CorrectionSettings(band=(0.6, 1.6), opsm=0.02, m2po=0.1), kl=KlPenaltySettings(coefficient=0.1)
    )
    entropy = torch.rand(sum(map(len, case)), dtype=torch.float64)
    result, _ = run(case, objective, entropy)
    metrics = summarise_metrics(result.sums, objective)
    gaps = [[token["current"] - token["behaviour"] for token in own] for own in case]
    flat = np.concatenate(gaps)
    ratios, products = np.exp(flat), np.array([np.exp(sum(own)) for own in gaps])
    x = np.array([token["reference"] - token["current"] for own in case for token in own])
    expected = {
        "kl_k1": -flat.mean(),
        "kl_k3": (ratios - 1 - flat).mean(),
        "ess": ratios.sum() ** 2 / (len(ratios) * (ratios**2).sum()),
        "ess_sequence": products.sum() ** 2 / (len(products) * (products**2).sum()),
        "mismatch_max": abs(flat).max(),
        "kl_reference": (np.exp(x) - 1 - x).mean(),
        "entropy": entropy.mean().item(),
        "masked_band": np.mean((ratios < 0.6) | (ratios > 1.6)),
        "masked_m2po": np.mean([not token["keep"] for own in case for token in own]),
    }
    for name, value in expected.items():
        assert metrics[name] == pytest.approx(value), name
    assert metrics["masked_opsm"] > 0
    assert "masked_band" not in summarise_metrics(result.sums, make_objective()), "what was not asked for is not told"


@given(st.lists(st.floats(-30, 30), min_size=1, max_size=8))
def test_effective_sample_sizes_are_fractions(gaps):
    case = [
        [{"behaviour": 0.0, "current": g, "stopped": g, "advantage": 1.0, "weight": 1.0, "staleness": 0}] for g in gaps
    ]
    metrics = summarise_metrics(run(case, LOSSES["clip"])[0].sums, LOSSES["clip"])
    for name in ("ess", "ess_sequence"):
        assert 1 / len(gaps) - 1e-9 <= metrics[name] <= 1 + 1e-9


def test_likelihood_loss_is_the_weighted_mean():
    logprobs = torch.tensor([-1.0, -3.0], requires_grad=True)
    zeros = torch.zeros(2)
    result = likelihood_loss(logprobs, TokenColumns(zeros, zeros, torch.full((2,), 0.125), zeros.int(), zeros.long()))
    result.loss.backward()
    assert result.loss.item() == 0.5
    assert logprobs.grad.tolist() == [-0.125, -0.125]
    assert isinstance(result.sums, MetricSums)
    assert result.sums.totals[:2].tolist() == [0.5, 2]


@pytest.mark.parametrize("name", LOSSES)
@pytest.mark.parametrize("advantage", [1.0, -1.0])
def test_a_behaviour_of_minus_infinity_is_bounded(name, advantage):
    """The codec refuses such a trajectory; what is computed all the same has to end in a bound."""
    objective = LOSSES[name]
    token = {
        "behaviour": -math.inf,
        "current": -1.0,
        "stopped": -1.0,
        "advantage": advantage,
        "weight": 1.0,
        "staleness": 0,
    }
    result, grad = run([[token]], objective)
    assert torch.isfinite(result.loss)
    assert torch.isfinite(grad).all()
    assert result.sums.largest.item() == math.inf


@pytest.mark.parametrize("loss", ["cispo", "reinforce"])
def test_a_log_probability_of_minus_infinity_is_seen(loss):
    """A loss that is not finite is what makes the step be skipped: it must not be hidden."""
    token = {
        "behaviour": -1.0,
        "current": -math.inf,
        "stopped": -math.inf,
        "advantage": 1.0,
        "weight": 1.0,
        "staleness": 0,
    }
    assert not torch.isfinite(run([[token]], LOSSES[loss])[0].loss)

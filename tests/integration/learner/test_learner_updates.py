"""Batches that do more or less than one plain update: passes before it, several updates, none."""

import numpy as np
import pytest
from learner_data import lineage, payload, sft_batches, trajectory

from learner.data.batch import make_supervised_samples, read_batch
from learner.losses.settings import CorrectionSettings, KlPenaltySettings, RewardShapingSettings
from protocol.codec import pack_trajectory
from protocol.trajectory import DropReason
from protocol.weights import WeightVersion
from tests.support.runs.learner_specs import change_spec, make_objective

pytestmark = pytest.mark.first_case

EVERYTHING = make_objective(
    minibatches=2,
    eps_low=0.01,
    eps_high=0.01,
    corrections=CorrectionSettings(proximal="recomputed", cap=1.1, m2po=0.05),
    kl=KlPenaltySettings(coefficient=0.5, estimator="k3"),
)
LAYOUTS = {"one rank": {}, "TP2": {"tp": 2}, "PP2": {"pp": 2}, "DP2": {}}


def step(number: int, batch: list[bytes]) -> tuple:
    return ("step", number, batch, lineage(), WeightVersion(4))


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_prepass_gives_the_log_probabilities_of_hugging_face(ranks, settings, layout):
    """On every rank, for every sample, in the samples' order, however they were packed."""
    samples = make_supervised_samples(sft_batches(1)[0].sequences)
    made = settings(micro_batch_tokens=60, **LAYOUTS[layout])
    (expected,) = ranks.run("reference_logprobs", folder=made.model_path, sequences=[s.token_ids for s in samples])
    for found in ranks.run("prepass", 1 if layout == "one rank" else 2, settings=made, samples=samples):
        for own, sample, reference in zip(found, samples, expected, strict=True):
            np.testing.assert_allclose(own, reference[sample.targets], atol=2e-6)


def test_a_prepass_gives_the_log_probabilities_of_the_step_itself(ranks, settings):
    """Otherwise the ratio to the proximal policy would not be 1 where nothing has changed."""
    rng, made = np.random.default_rng(1), settings()
    bare = [trajectory(rng, 0, i, float(i % 2), (4,)) for i in range(4)]
    samples = read_batch([pack_trajectory(t) for t in bare], lineage(), WeightVersion(4), made).samples
    (found,) = ranks.run("prepass", settings=made, samples=samples)
    for sample, own, each in zip(samples, found, bare, strict=True):
        each.segments[0].logprobs[sample.targets] = own
    (report,) = ranks.learner(made, step(5, [pack_trajectory(t) for t in bare]))
    assert report.metrics["mismatch_max"] < 1e-6


@pytest.mark.parametrize("layout", LAYOUTS)
def test_decoupled_updates_equal_hugging_face(ranks, settings, tmp_path, layout):
    """Proximal policy, batch-wide mask, penalty to frozen weights and two updates a batch, in two steps."""
    made = settings(objective=EVERYTHING, lr=1e-2, adam_eps=1e-3, **LAYOUTS[layout])
    batches = [payload(seed=n) for n in range(2)]
    out = str(tmp_path / "out")
    first, second = ranks.learner(
        made,
        ("freeze_reference", str(tmp_path / "reference"), True),
        *(step(5 + n, batch) for n, batch in enumerate(batches)),
        ("publish", WeightVersion(9), 2, WeightVersion(4), out),
        world=1 if layout == "one rank" else 2,
    )[1:3]
    samples = [read_batch(batch, lineage(), WeightVersion(4), made).samples for batch in batches]
    (((one, two), expected),) = ranks.run(
        "reference_policy_steps", folder=made.model_path, batches=samples, settings=made
    )
    for report, (loss, norm) in ((first, one), (second, two)):
        assert report.metrics["loss"] == pytest.approx(loss, rel=1e-4, abs=1e-6)
        assert report.metrics["grad_norm"] == pytest.approx(norm, rel=1e-4)
        assert 0 < report.metrics["masked_m2po"] < 1
    assert second.metrics["clip_high"] + second.metrics["clip_low"] > 0, "the bounds are at work"
    assert second.metrics["kl_reference"] > 1e-4
    (found,) = ranks.run("read_weights", folder=out)
    for name, weight in expected.items():
        np.testing.assert_allclose(found[name], weight, atol=5e-6, err_msg=name)


@pytest.mark.parametrize("offload", ["none", "parameters"])
def test_a_reloaded_reference_equals_the_one_that_was_written(ranks, settings, tmp_path, offload):
    """A learner that died and came back must be pulled to the same weights; and looking at them changes none, though
    its own wait on the host then."""
    folder = str(tmp_path / "reference")
    made = settings(objective=make_objective(kl=KlPenaltySettings(coefficient=0.1)))
    keep, again = ("freeze_reference", folder, True), ("freeze_reference", folder, False)
    steps = [step(5, payload(seed=1)), step(6, payload(seed=2))]
    whole = ranks.learner(made, keep, steps[0], steps[1], ("weights_digest",))
    (tmp_path / "reference").rename(tmp_path / "kept")
    assert whole[1].metrics["kl_reference"] == pytest.approx(0, abs=1e-9)
    assert whole[2].metrics["kl_reference"] > 0
    resumed = ranks.learner(
        change_spec(made, offload=offload),
        keep,
        steps[0],
        ("weights_digest",),
        again,
        ("weights_digest",),
        steps[1],
        ("weights_digest",),
    )
    assert resumed[2] == resumed[4]
    assert resumed[-1] == whole[-1]
    assert resumed[-2].metrics["kl_reference"] == whole[2].metrics["kl_reference"]


def test_a_penalty_without_a_reference_is_an_error(ranks, settings):
    made = settings(objective=make_objective(kl=KlPenaltySettings(coefficient=0.1)))
    ((_, _, message),) = ranks.run("survives", settings=made, attempt=step(5, payload()), error="LearnerNotReadyError")
    assert "freeze_reference" in message


TOO_LARGE = 1e9
"""A reward that is allowed, and whose gradient is not finite under :data:`SHAPING`, unlike that of an ordinary one."""
SHAPING = RewardShapingSettings(scale=1e15)


def bad_payload() -> list[bytes]:
    rng = np.random.default_rng(4)
    rewards = (TOO_LARGE, -TOO_LARGE, 0.0)
    return [pack_trajectory(trajectory(rng, 0, i, reward, (4,))) for i, reward in enumerate(rewards)]


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_step_that_is_not_finite_is_left_out(ranks, settings, layout):
    """One bad batch must not poison weights or moments: the step after it is that of a run that never saw it."""
    made = settings(objective=make_objective(advantage="no_std", shaping=SHAPING), **LAYOUTS[layout])
    world = 1 if layout == "one rank" else 2
    good, then = step(5, payload(seed=1)), (step(6, payload(seed=2)), ("weights_digest",))
    (without,) = {ranks_found[-1] for ranks_found in ranks.run("calls", world, settings=made, then=(good, *then))}
    for found in ranks.run("calls", world, settings=made, then=(good, step(6, bad_payload()), *then)):
        report = found[1]
        assert found[0].trained
        assert found[-1] == without
        assert report.trained == ()
        assert report.dropped == {f"train-g000000-s{n:02d}": DropReason.NONFINITE for n in range(3)}
        assert (report.metrics["nonfinite_updates"], report.metrics["updated"]) == (1, 0)
        assert "loss" not in report.metrics


def test_only_the_finite_ones_of_several_updates_are_applied(ranks, settings):
    """Trained trajectories are reported as trained and the others as dropped: the accounting balances."""
    rng = np.random.default_rng(4)
    lengths = {(0, 0): 40, (1, 0): 30, (1, 1): 20, (0, 1): 10}  # shared out by cost: the first with the last
    batch = [
        pack_trajectory(
            trajectory(rng, group, i, (TOO_LARGE if group == 0 else 1.0) * (-1) ** i, (4,), length=lengths[group, i])
        )
        for group in range(2)
        for i in range(2)
    ]
    made = settings(objective=make_objective(advantage="no_std", minibatches=2, shaping=SHAPING))
    before, report, after = ranks.learner(made, ("weights_digest",), step(5, batch), ("weights_digest",))
    assert before != after
    assert report.trained == ("train-g000001-s00", "train-g000001-s01")
    assert set(report.dropped.values()) == {DropReason.NONFINITE}
    assert (report.metrics["nonfinite_updates"], report.metrics["updated"]) == (1, 1)
    assert np.isfinite(list(report.metrics.values())).all()


def test_a_token_above_the_vocabulary_is_dropped_with_what_only_it_is_compared_with(ranks, settings):
    rng = np.random.default_rng(5)
    strange = trajectory(rng, 0, 0, 1.0, (4,))
    strange.segments[0].token_ids[3] = 97
    batch = [pack_trajectory(strange), pack_trajectory(trajectory(rng, 0, 1, 0.0, (4,)))]
    before, report, after = ranks.learner(settings(), ("weights_digest",), step(5, batch), ("weights_digest",))
    assert before == after
    assert report.trained == ()
    assert set(report.dropped.values()) == {DropReason.UNUSABLE}


def test_fine_tuning_that_becomes_non_finite_fails(ranks, settings):
    """A warm start that blew up must not be kept for other runs."""
    attempt = ("sft_run", sft_batches(3, lr=1e30))
    ((_, _, message),) = ranks.run("survives", settings=settings(), attempt=attempt, error="FloatingPointError")
    assert "lower the learning rate" in message

"""The learner trains what Hugging Face would train, however its work is cut up."""

from dataclasses import replace

import numpy as np
import pytest
from learner_data import SHAPES, VOCABULARY, lineage, payload, sft_batches, trajectory, with_logprobs

from learner.data.sequences import join_sequences
from protocol.codec import pack_trajectory, unpack_trajectory
from protocol.run_directory.trained_log import TokenLossFlag, unpack_trained_tokens
from protocol.trajectory import DropReason
from protocol.weights import WeightVersion
from tests.support.runs.learner_specs import make_objective

pytestmark = pytest.mark.first_case


@pytest.mark.parametrize("shape", SHAPES)
def test_three_steps_equal_hugging_face(ranks, settings, shape):
    """Otherwise a model trained here would not be the model that the user thinks it is."""
    made, batches = settings(shape), sft_batches()
    reports = ranks.learner(made, ("sft_run", batches))[0]
    ((expected, _),) = ranks.run("reference_sft", folder=made.model_path, batches=batches, settings=made)
    for report, (loss, norm) in zip(reports, expected, strict=True):
        assert report.loss == pytest.approx(loss, rel=1e-5)
        assert report.grad_norm == pytest.approx(norm, rel=1e-5)


@pytest.mark.parametrize(("world", "changes"), [(1, {}), (2, {}), (2, {"tp": 2})], ids=["alone", "DP2", "TP2"])
def test_weighted_sequences_equal_hugging_face(ranks, settings, world, changes):
    """And a held-out loss is the loss that training would begin with."""
    made, rng = settings(**changes), np.random.default_rng(2)
    batches = [replace(batch, weights=[0.0, *rng.uniform(0.1, 2, 6).tolist()]) for batch in sft_batches()]
    held_out, reports = ranks.learner(
        made, ("log_likelihoods", batches[0].sequences), ("sft_run", batches), world=world
    )
    ((expected, _),) = ranks.run("reference_sft", folder=made.model_path, batches=batches, settings=made)
    for report, (loss, norm) in zip(reports, expected, strict=True):
        assert report.loss == pytest.approx(loss, rel=1e-5)
        assert report.grad_norm == pytest.approx(norm, rel=1e-5)
    tokens = sum(w * int(mask[1:].sum()) for w, (_, mask) in zip(batches[0].weights, batches[0].sequences, strict=True))
    above = sum(w * found for w, found in zip(batches[0].weights, held_out, strict=True))
    assert -above / tokens == pytest.approx(reports[0].loss, rel=1e-5)


def test_weights_after_a_step_equal_hugging_face(ranks, settings, tmp_path):
    """Loss and norm see nothing of a wrong update."""
    made, batches = settings(lr=1e-3, adam_eps=1e-3), sft_batches(2, lr=1e-3)
    ranks.learner(made, ("sft_run", batches), ("publish", WeightVersion(1), 1, WeightVersion(0), str(tmp_path / "out")))
    ((_, expected),) = ranks.run("reference_sft", folder=made.model_path, batches=batches, settings=made)
    (found,) = ranks.run("read_weights", folder=str(tmp_path / "out"))
    for name, weight in expected.items():
        np.testing.assert_allclose(found[name], weight, atol=2e-6, err_msg=name)


def test_packing_changes_nothing(ranks, settings):
    """A few sequences at a time, or all in one pass: the same gradient."""
    batches = sft_batches()
    whole = ranks.learner(settings(), ("sft_run", batches))[0]
    cut = ranks.learner(settings(micro_batch_tokens=60), ("sft_run", batches))[0]
    for a, b in zip(whole, cut, strict=True):
        assert b.loss == pytest.approx(a.loss, rel=1e-5)
        assert b.grad_norm == pytest.approx(a.grad_norm, rel=1e-5)


def test_small_logit_chunks_change_nothing(ranks, settings):
    batches = sft_batches()
    whole = ranks.learner(settings(), ("sft_run", batches))[0]
    cut = ranks.learner(settings(logprob_chunk_bytes=97 * 4 * 5), ("sft_run", batches))[0]
    assert [r.loss for r in cut] == pytest.approx([r.loss for r in whole], rel=1e-5)
    assert [r.grad_norm for r in cut] == pytest.approx([r.grad_norm for r in whole], rel=1e-5)


LAYOUTS = {
    "TP2": {"tp": 2},
    "TP2 sequence parallel": {"tp": 2, "sequence_parallel": True},
    "PP2": {"pp": 2},
    "DP2": {},
    "DP2 distributed optimizer": {"distributed_optimizer": True},
}


@pytest.mark.parametrize("changes", [{"tp": 2}, {"pp": 2}, {"cp": 2}, {}], ids=["TP2", "PP2", "CP2", "DP2"])
def test_log_probabilities_agree_in_every_layout_and_computing_them_changes_no_weight(ranks, settings, changes):
    """Otherwise the layout of a learner would decide whether its run is stopped, or the computation would train."""
    sequences = sft_batches(1)[0].sequences
    made = settings(temperature=0.7)
    before, alone, after = ranks.learner(made, ("weights_digest",), ("logprobs", sequences), ("weights_digest",))
    assert before == after
    assert [len(found) for found in alone] == [int(mask[1:].sum()) for _, mask in sequences]
    (shared,) = ranks.learner(settings(temperature=0.7, **changes), ("logprobs", sequences), world=2)
    np.testing.assert_allclose(np.concatenate(shared), np.concatenate(alone), atol=1e-5)
    (likelihoods,) = ranks.learner(made, ("log_likelihoods", sequences))
    assert [found.sum(dtype=np.float64) for found in alone] == pytest.approx(likelihoods, rel=1e-6)


@pytest.mark.parametrize(
    "changes", [None, {"tp": 2}, {"pp": 2}, {"cp": 2}, {}], ids=["alone", "TP2", "PP2", "CP2", "DP2"]
)
def test_the_token_records_of_a_step_match_log_probabilities_computed_before_it(ranks, settings, changes):
    """Otherwise a person would be shown another gap between learner and engine than there was."""
    made, blobs = settings(**(changes or {})), payload()
    trajectories = [unpack_trajectory(blob) for blob in blobs]
    sequences = [pair for each in trajectories for pair in join_sequences(each.segments)]
    looked, report = ranks.learner(
        made,
        ("logprobs", sequences),
        ("step", 4, blobs, lineage(), WeightVersion(4)),
        world=1 if changes is None else 2,
    )
    found = dict(zip((each.request.trajectory_id for each in trajectories), looked, strict=True))
    assert report.records.keys() == set(report.trained)
    for name, record in report.records.items():
        facts = unpack_trained_tokens(record.blob)
        (segment,) = next(each.segments for each in trajectories if each.request.trajectory_id == name)
        kept = ~np.isnan(facts.logprobs)
        sampled = segment.loss_mask == 1
        assert kept[sampled].any()
        assert not kept[~sampled].any()
        np.testing.assert_allclose(facts.logprobs[sampled][kept[sampled]], found[name][kept[sampled]], atol=1e-5)
        gaps = np.abs(facts.logprobs[kept] - segment.logprobs[kept])
        assert record.mean_logprob_gap == pytest.approx(float(gaps.mean()), rel=1e-4)
        assert np.unique(facts.advantages[kept]).size == 1
        assert record.mean_advantage == pytest.approx(float(facts.advantages[kept][0]), rel=1e-5)
    marks = np.concatenate([unpack_trained_tokens(record.blob).loss_flags for record in report.records.values()])
    tokens = sum(int((~np.isnan(unpack_trained_tokens(r.blob).logprobs)).sum()) for r in report.records.values())
    for mark, metric in (
        (TokenLossFlag.HIGH, "clip_high"),
        (TokenLossFlag.LOW, "clip_low"),
        (TokenLossFlag.DUAL, "clip_dual"),
    ):
        assert ((marks & mark.value) > 0).sum() / tokens == pytest.approx(report.metrics[metric], abs=1e-9)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_two_ranks_train_as_one(ranks, settings, layout):
    """Losses, norms and metrics are of the whole batch, whoever computed which part."""
    then = (("sft_run", sft_batches()), ("step", 4, payload(), lineage(), WeightVersion(4)))
    alone, step_alone = ranks.learner(settings(), *then)
    both = ranks.run("calls", 2, settings=settings(**LAYOUTS[layout]), then=then)
    for together, step_together in both:
        for a, b in zip(alone, together, strict=True):
            assert b.loss == pytest.approx(a.loss, rel=1e-5)
            assert b.grad_norm == pytest.approx(a.grad_norm, rel=1e-5)
        assert step_together.trained == step_alone.trained
        for name in step_alone.metrics.keys() - {"seconds", "tokens_per_s"}:
            assert step_together.metrics[name] == pytest.approx(step_alone.metrics[name], rel=1e-3, abs=1e-5), name


def test_more_ranks_than_sequences(ranks, settings):
    """The last batch of a run may be that small; a rank without a share must not hang the others."""
    batch = sft_batches(1, sequences=1)
    alone = ranks.learner(settings(), ("sft_run", batch))[0][0]
    both = ranks.run("calls", 2, settings=settings(), then=(("sft_run", batch),))
    assert [found[0][0].loss for found in both] == pytest.approx([alone.loss] * 2, rel=1e-6)


def test_bfloat16_trains_close_to_float32(ranks, settings):
    exact = ranks.learner(settings(), ("sft_run", sft_batches()))[0]
    rough = ranks.learner(settings(dtype="bfloat16"), ("sft_run", sft_batches()))[0]
    assert [r.loss for r in rough] == pytest.approx([r.loss for r in exact], rel=2e-2)


def test_step_recomputes_the_behaviour_logprobs(ranks, settings):
    """With the sampling weights unchanged, the ratio is 1: nothing is clipped, and the mismatch is rounding."""
    rng, made = np.random.default_rng(1), settings(temperature=0.7)
    bare = [trajectory(rng, i // 4, i % 4, float(i % 2), (4,)) for i in range(8)]
    sequences = [t.segments[0].token_ids for t in bare]
    (recorded,) = ranks.run("reference_logprobs", folder=made.model_path, sequences=sequences, temperature=0.7)
    true = [pack_trajectory(with_logprobs(t, logprobs)) for t, logprobs in zip(bare, recorded, strict=True)]
    (report,) = ranks.learner(made, ("step", 5, true, lineage(), WeightVersion(4)))
    metrics = report.metrics
    assert metrics["mismatch_max"] < 1e-4
    assert metrics["clip_high"] == metrics["clip_low"] == metrics["clip_dual"] == 0
    assert metrics["kl_k3"] == pytest.approx(0, abs=1e-6)
    assert metrics["ess"] == pytest.approx(1, abs=1e-6)
    assert 0 < metrics["entropy"] < np.log(VOCABULARY)


def test_step_is_reproducible_and_depends_on_the_clip_range(ranks, settings):
    """Training again on the recorded batches gives the same weights, bit for bit; with another upper bound, others."""
    then = (*(("step", n, payload(seed=n), lineage(), WeightVersion(4)) for n in range(3)), ("weights_digest",))
    first = ranks.learner(settings(objective=make_objective(eps_high=0.28)), *then)
    again = ranks.learner(settings(objective=make_objective(eps_high=0.28)), *then)
    symmetric = ranks.learner(settings(objective=make_objective(eps_high=0.2)), *then)
    assert first[0].metrics["clip_high"] > 0
    assert first[-1] == again[-1]
    assert first[-1] != symmetric[-1]


def test_stale_tokens_get_no_loss_but_keep_their_weight_in_the_mean(ranks, settings):
    rng = np.random.default_rng(2)
    batch = [trajectory(rng, 0, i, float(i % 2), (0, 7) if i else (0,), length=30) for i in range(4)]
    (report,) = ranks.learner(
        settings(max_staleness=3), ("step", 8, [pack_trajectory(t) for t in batch], lineage(), WeightVersion(7))
    )
    assert report.dropped == {"train-g000000-s00": DropReason.ALL_STALE}
    assert report.trained == tuple(f"train-g000000-s{i:02d}" for i in (1, 2, 3))
    metrics = report.metrics
    assert metrics["sampled_tokens"] == 80
    assert metrics["trained_tokens"] == 30
    assert metrics["masked_tokens"] == 30, "the 20 of the trajectory that was dropped are not masked ones"
    assert metrics["staleness_max"] == 0
    (fresh,) = ranks.learner(
        settings(max_staleness=9), ("step", 8, [pack_trajectory(t) for t in batch], lineage(), WeightVersion(7))
    )
    assert fresh.metrics["trained_tokens"] == 80
    assert fresh.metrics["staleness_max"] == 7


def test_a_batch_of_stale_tokens_leaves_the_weights_alone(ranks, settings):
    old = payload(versions=(0,))
    before, report, after = ranks.learner(
        settings(max_staleness=2),
        ("weights_digest",),
        ("step", 8, old, lineage(), WeightVersion(7)),
        ("weights_digest",),
    )
    assert before == after
    assert report.metrics["updated"] == 0
    assert set(report.dropped.values()) == {DropReason.ALL_STALE}


def test_a_group_without_variance_does_no_harm(ranks, settings):
    rng = np.random.default_rng(3)
    same = [pack_trajectory(trajectory(rng, 0, i, 0.1, (4,))) for i in range(4)]
    (report,) = ranks.learner(settings(), ("step", 5, same, lineage(), WeightVersion(4)))
    assert report.metrics["loss"] == 0
    assert report.metrics["grad_norm"] == 0


def test_truncated_importance_sampling_trains(ranks, settings):
    (clipped,) = ranks.learner(settings(), ("step", 5, payload(), lineage(), WeightVersion(4)))
    (weighted,) = ranks.learner(
        settings(objective=make_objective(loss="reinforce", tis_cap=2.0)),
        ("step", 5, payload(), lineage(), WeightVersion(4)),
    )
    assert weighted.metrics["grad_norm"] > 0
    assert weighted.metrics["loss"] != clipped.metrics["loss"]


def test_reset_optimizer_forgets_the_moments(ranks, settings):
    """After fine-tuning, reinforcement learning starts with a fresh Adam: the first step has the size of the rate."""
    batches = sft_batches(2)
    fresh = ranks.learner(
        settings(), ("sft", batches[0]), ("reset_optimizer",), ("sft", batches[1]), ("weights_digest",)
    )
    kept = ranks.learner(settings(), ("sft", batches[0]), ("sft", batches[1]), ("weights_digest",))
    assert fresh[2].loss == kept[1].loss
    assert fresh[-1] != kept[-1]


def test_a_missing_device_is_refused(ranks, settings):
    """Without this, a run that was meant for the GPU would train on the CPU for days without any notice."""
    with pytest.raises(
        AssertionError, match=r"UserError: learner\.device = cuda, and torch .* has cpu in this process"
    ):
        ranks.learner(settings(device="cuda"))

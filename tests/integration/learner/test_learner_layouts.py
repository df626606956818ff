"""Odd batches and odd machines: what a rank lacks, or has too much of, must not stop the others."""

import numpy as np
import pytest
from learner_data import SHAPES, VOCABULARY, lineage, payload, sft_batches

from learner.messages import SftBatch
from protocol.weights import WeightVersion

pytestmark = pytest.mark.first_case

LAYOUTS = {
    "TP2+SP × CP2": (4, {"tp": 2, "cp": 2, "sequence_parallel": True}),
    "TP2": (2, {"tp": 2}),
    "PP2 × DP2": (4, {"pp": 2, "distributed_optimizer": True}),
    "DP2 × CP2": (4, {"cp": 2}),
    "CP4": (4, {"cp": 4}),
}
MEMORY = {
    "vocab_size": VOCABULARY,
    "hidden_size": 64,
    "intermediate_size": 256,
    "num_hidden_layers": 8,
    "num_attention_heads": 4,
    "num_key_value_heads": 4,
    "head_dim": 16,
    "tie_word_embeddings": True,
}


def sequence(length, first=0):
    """Tokens and a mask that gives all but the first loss."""
    tokens = (np.arange(first, first + length) % VOCABULARY).astype(np.int32)
    return tokens, np.ones(length, np.uint8)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_ranks_with_an_empty_share_train_as_one_rank_alone(ranks, settings, layout):
    """The last batch of a run may have one sequence, and that may be two tokens long."""
    world, changes = LAYOUTS[layout]
    then = (("sft", SftBatch([sequence(2)], 1e-3)), ("step", 1, payload(1, 2), lineage(), WeightVersion(4)))
    alone, step_alone = ranks.learner(settings(dtype="float64"), *then)
    for found, step in ranks.run("calls", world, settings=settings(dtype="float64", **changes), then=then):
        assert found.loss == pytest.approx(alone.loss, rel=1e-9)
        assert found.grad_norm == pytest.approx(alone.grad_norm, rel=1e-9)
        assert step.metrics["loss"] == pytest.approx(step_alone.metrics["loss"], rel=1e-9)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_ranks_with_different_numbers_of_passes(ranks, settings, layout):
    """One replica has the long sequence, the other four passes of short ones: both schedules end."""
    world, changes = LAYOUTS[layout]
    batch = SftBatch([sequence(60), *(sequence(15, n) for n in range(12))], 1e-3)
    alone = ranks.learner(settings(), ("sft", batch))[0]
    tokens = -(-60 // changes.get("cp", 1))
    for (found,) in ranks.run(
        "calls", world, settings=settings(micro_batch_tokens=tokens, **changes), then=(("sft", batch),)
    ):
        assert found.loss == pytest.approx(alone.loss, rel=1e-5)
        assert found.grad_norm == pytest.approx(alone.grad_norm, rel=1e-5)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_batch_that_cannot_be_trained_stops_every_rank_alike(ranks, settings, layout):
    """Not one with an error while the others wait for it."""
    world, changes = LAYOUTS[layout]
    made = settings(micro_batch_tokens=20, **changes)
    most = 20 * changes.get("cp", 1)
    attempt = ("sft", SftBatch([sequence(most), sequence(most + 1)], 1e-3))
    for before, after, message in ranks.run("survives", world, settings=made, attempt=attempt, error="BadSampleError"):
        assert before == after
        assert f"of {most + 1} tokens is longer than" in message


def test_a_token_of_another_tokenizer(ranks, settings):
    attempt = ("sft", SftBatch([(np.array([1, VOCABULARY], np.int32), np.ones(2, np.uint8))], 1e-3))
    ((before, after, message),) = ranks.run("survives", settings=settings(), attempt=attempt, error="BadSampleError")
    assert before == after
    assert f"token {VOCABULARY}, and the model's vocabulary has {VOCABULARY}" in message


@pytest.mark.parametrize(
    ("changes", "world", "message"),
    [
        ({"pp": 3}, 3, "pp=3 must divide the model's 2 layers"),
        ({"tp": 4}, 4, "tp=4 must divide the model's 2 key-value heads"),
        ({"tp": 2, "cp": 2}, 2, "2 learner ranks cannot be split into tp=2 × pp=1 × cp=2: use a multiple of 4"),
    ],
)
def test_a_layout_that_does_not_fit_is_refused_in_one_sentence(ranks, settings, changes, world, message):
    with pytest.raises(AssertionError, match=f"UserError: {message}"):
        ranks.run("calls", world, settings=settings(**changes), then=())


@pytest.mark.parametrize("shape", SHAPES)
def test_transformers_loads_the_trained_weights(ranks, settings, tmp_path, shape):
    """And computes the same: the folder says all that the model is."""
    made, tokens = settings(shape, tp=2), sequence(24)[0]
    then = (("sft", sft_batches(1)[0]), ("publish", WeightVersion(1), 1, WeightVersion(0), str(tmp_path / "out")))
    ranks.run("calls", 2, settings=made, then=then)
    (found,) = ranks.run("logits", folder=str(tmp_path / "out"), sequence=tokens)
    ((_, weights),) = ranks.run("reference_sft", folder=made.model_path, batches=sft_batches(1), settings=made)
    (published,) = ranks.run("read_weights", folder=str(tmp_path / "out"))
    assert weights.keys() == published.keys()
    for name, weight in weights.items():
        np.testing.assert_allclose(published[name], weight, atol=1e-4, err_msg=name)
    picked = found - np.log(np.exp(found).sum(-1, keepdims=True))
    (recorded,) = ranks.run("reference_logprobs", folder=str(tmp_path / "out"), sequences=[tokens])
    np.testing.assert_allclose(picked[np.arange(23), tokens[1:]], recorded[0][1:], atol=1e-5)


@pytest.mark.slow
def test_a_sequence_split_across_ranks_trains_as_on_one_rank(ranks, settings, tmp_path):
    """Long ones are trained by context parallelism, and no mask of queries times keys is ever made."""
    from dataclasses import replace

    length, cp = 32_768, 4
    ranks.run("make_model", folder=str(tmp_path), shape=SHAPES["tied"] | {"max_position_embeddings": length})
    batch = SftBatch([sequence(length)], 1e-3)
    alone = replace(settings(micro_batch_tokens=length), model_path=str(tmp_path))
    (expected,) = ranks.learner(alone, ("sft", batch))
    shared = replace(settings(micro_batch_tokens=length // cp, cp=cp), model_path=str(tmp_path))
    for (found,) in ranks.run("calls", cp, settings=shared, then=(("sft", batch),)):
        assert found.loss == pytest.approx(expected.loss, rel=1e-5)
        assert found.grad_norm == pytest.approx(expected.grad_norm, rel=1e-5)


@pytest.fixture(scope="module")
def deep(ranks, tmp_path_factory):
    """A model whose activations are larger than its weights."""
    folder = tmp_path_factory.mktemp("deep")
    ranks.run("make_model", folder=str(folder), shape=MEMORY | {"max_position_embeddings": 4096})
    return str(folder)


@pytest.mark.slow
def test_recomputation_saves_memory(ranks, settings, deep):
    from dataclasses import replace

    batch, peaks = SftBatch([sequence(1024), sequence(1024)], 1e-3), {}
    for recompute in ("none", "selective", "full"):
        made = replace(settings(recompute=recompute), model_path=deep)
        (peaks[recompute],) = ranks.run("step_peak_bytes", settings=made, batch=batch)
    assert peaks["selective"] < 0.6 * peaks["none"], peaks
    assert peaks["full"] < 0.6 * peaks["selective"], peaks


@pytest.mark.slow
def test_the_logits_are_never_held_in_memory_as_a_whole(ranks):
    """With a vocabulary of 151,936 512 tokens would take 0.3 GB, and three times that with a gradient."""
    tokens, vocabulary, chunk = 512, 151_936, 8 << 20
    whole = 4 * tokens * vocabulary
    (plain,) = ranks.run("logprob_peak_bytes", tokens=tokens, vocabulary=vocabulary, chunk_bytes=0)
    (chunked,) = ranks.run("logprob_peak_bytes", tokens=tokens, vocabulary=vocabulary, chunk_bytes=chunk)
    assert plain > 1.5 * whole
    assert chunked < 6 * chunk < whole / 4


def test_transformer_engine_layers_accept_the_arguments_that_megatron_passes(ranks, settings):
    """They cannot be made here; that their constructors have every name can be seen."""
    (called,) = ranks.run("calls_of_layers", settings=settings())
    (known,) = ranks.run("parameters_of_transformer_engine")
    assert called.keys() == known.keys() == {"column", "row", "norm"}
    for name, keywords in called.items():
        assert keywords <= known[name], name

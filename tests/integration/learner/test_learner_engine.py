"""SGLang serves exactly what the learner publishes, in several files or as adapters alone."""

import asyncio
from dataclasses import replace

import numpy as np
import pytest
from learner_data import lineage, payload, sft_batches

from actors.engines.engine import SGLangEngine
from learner.data.batch import make_supervised_samples
from learner.settings import LoraSettings
from protocol.weights import WeightVersion
from tests.support.actors.engine_requests import make_request
from tests.support.actors.engine_specs import engine_spec
from tests.support.runs.learner_specs import change_spec

pytestmark = [pytest.mark.sglang, pytest.mark.slow]
PROMPT = list(range(3, 40))
SHAPE = {
    "vocab_size": 320,
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 4096,
    "initializer_range": 0.15,
}
MODELS = {
    "Qwen2.5, tied": SHAPE | {"model_type": "qwen2", "tie_word_embeddings": True},
    "Qwen3, untied": SHAPE | {"model_type": "qwen3", "head_dim": 16, "tie_word_embeddings": False},
}


def spec(folder, run_dir, **changes):
    return engine_spec(
        name="tiny",
        run_dir=run_dir,
        model_path=folder,
        context_length=2048,
        max_total_tokens=20_000,
        max_running=16,
        device="cpu",
        node="here",
        **changes,
    )


async def sampled(folder, run_dir, manifest):
    engine = SGLangEngine(spec(folder, run_dir))
    await engine.start(manifest)
    try:
        return await engine.generate(make_request(PROMPT, 60))
    finally:
        await engine.stop()


@pytest.mark.parametrize("shape", MODELS)
def test_sglang_serves_the_trained_weights(ranks, settings, tmp_path, shape):
    """Its log-probabilities are those that transformers computes from the same folder."""
    source, out = tmp_path / "source", tmp_path / "out"
    ranks.run("make_model", folder=str(source), shape=MODELS[shape])
    made = settings(tp=2)
    small_shards = made.trainer.model_copy(update={"shard_mb": 60_000 / (1 << 20)})
    made = replace(made, model_path=str(source), trainer=small_shards)
    then = (
        ("step", 1, payload(), lineage(), WeightVersion(4)),
        ("publish", WeightVersion(5), 1, WeightVersion(4), str(out)),
    )
    manifest = ranks.run("calls", 2, settings=made, then=then)[0][1]
    assert len(list(out.glob("*.safetensors"))) > 1
    reply = asyncio.run(sampled(str(out), tmp_path, manifest))
    whole = np.array(PROMPT + reply.token_ids, np.int32)
    ((expected,),) = ranks.run("reference_logprobs", folder=str(out), sequences=[whole])
    assert reply.logprobs == pytest.approx(expected[len(PROMPT) :], abs=5e-5)


LIMITS = {"float32": 1e-4, "bfloat16": 1e-3}
"""Most mean k3 = exp(d) - 1 - d of the learner's log-probabilities against the server's."""


async def sampled_many(settings, manifest, temperature):
    engine = SGLangEngine(settings)
    await engine.start(manifest)
    try:
        prompts = [[3 + (7 * index + place) % 300 for place in range(20)] for index in range(16)]
        pending = [engine.generate(make_request(ids, 100, temperature=temperature)) for ids in prompts]
        return list(zip(prompts, await asyncio.gather(*pending), strict=True))
    finally:
        await engine.stop()


@pytest.mark.parametrize("temperature", [1.0, 0.7])
@pytest.mark.parametrize("dtype", LIMITS)
def test_learner_and_server_agree_on_the_log_probabilities_of_sampled_tokens(
    ranks, settings, tmp_path, dtype, temperature
):
    """Compare many sequences in one batch, in each dtype that a run may choose, with trained weights."""
    source, out = tmp_path / "source", tmp_path / "out"
    ranks.run("make_model", folder=str(source), shape=MODELS["Qwen3, untied"])
    made = replace(settings(dtype=dtype, temperature=temperature), model_path=str(source))
    then = (
        ("step", 1, payload(), lineage(), WeightVersion(4)),
        ("publish", WeightVersion(5), 1, WeightVersion(4), str(out)),
    )
    manifest = ranks.run("calls", 1, settings=made, then=then)[0][1]
    engine_spec = spec(str(out), tmp_path, dtype=dtype)
    replies = asyncio.run(sampled_many(engine_spec, manifest, temperature))
    whole = [np.array(prompt + reply.token_ids, np.int32) for prompt, reply in replies]
    masks = [np.r_[np.zeros(20), np.ones(len(tokens) - 20)].astype(np.uint8) for tokens in whole]
    samples = make_supervised_samples(list(zip(whole, masks, strict=True)))
    (ours,) = ranks.run("prepass", settings=replace(made, model_path=str(out)), samples=samples)
    gap = np.concatenate(ours) - np.concatenate([reply.logprobs for _, reply in replies])
    assert len(gap) == 16 * 100
    assert float(np.mean(np.expm1(gap) - gap)) < LIMITS[dtype]


ADAPTERS = {
    "Qwen2.5, tied": LoraSettings(rank=4, targets=("q_proj", "v_proj", "gate_proj")),
    "Qwen3, untied": LoraSettings(rank=8),
}


async def sampled_with_adapters(settings, *adapters):
    """A reply under each, of one engine."""
    engine, replies = SGLangEngine(settings), []
    await engine.start(adapters[0])
    try:
        for adapter in adapters:
            await engine.load_weights(adapter, 600)
            replies.append(await engine.generate(make_request(PROMPT, 60)))
    finally:
        await engine.stop()
    return replies


@pytest.mark.parametrize("shape", MODELS)
def test_sglang_loads_the_adapters_alone(ranks, settings, tmp_path, shape):
    """And its log-probabilities are those of the learner that trains them."""
    lora, source = ADAPTERS[shape], str(tmp_path / "source")
    ranks.run("make_model", folder=source, shape=MODELS[shape])
    made = replace(settings(tp=2, lora=lora, publish_adapters=True), model_path=source)
    checkpoint = str(tmp_path / "checkpoint")
    first, *_, last, _ = ranks.learner(
        made,
        ("publish_adapter", WeightVersion(4), 0, WeightVersion(3), str(tmp_path / "first")),
        *(("sft", batch) for batch in sft_batches(3, lr=2e-2)),
        ("begin_publish",),
        ("end_publish", WeightVersion(5), 3, WeightVersion(4), str(tmp_path / "last")),
        ("save", checkpoint),
        world=2,
    )
    replies = asyncio.run(sampled_with_adapters(spec(source, tmp_path, lora=lora, max_adapters=2), first, last))
    whole = [np.array(PROMPT + reply.token_ids, np.int32) for reply in replies]
    mask = (np.arange(len(whole[0])) >= len(PROMPT)).astype(np.uint8)
    samples = make_supervised_samples([(tokens, mask) for tokens in whole])
    (before,) = ranks.run("prepass", settings=change_spec(made, tp=1), samples=samples)
    (after,) = ranks.run("prepass", settings=change_spec(made, tp=1), samples=samples, checkpoint=checkpoint)
    assert replies[0].logprobs == pytest.approx(before[0], abs=5e-5)
    assert replies[1].logprobs == pytest.approx(after[1], abs=5e-5)
    assert np.abs(after[1] - before[1]).max() > 0.1

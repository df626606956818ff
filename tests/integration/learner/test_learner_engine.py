"""What the learner publishes, in several files or as adapters alone, is what SGLang serves."""

import asyncio
from dataclasses import replace

import numpy as np
import pytest
from learner_data import lineage, payload, sft_batches

from actors.engines import server
from actors.engines.client import SamplingOptions
from actors.engines.engine import Engine, EngineSettings
from actors.engines.replies import ReplyStream
from learner.batch import supervised
from learner.settings import TARGETS, Lora
from protocol.weights import Version
from tests.support.engine_requests import request

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


async def sampled(folder, run_dir, manifest):
    settings = EngineSettings(
        name="tiny",
        run_dir=run_dir,
        model_path=folder,
        context_length=2048,
        max_total_tokens=20_000,
        max_running=16,
        device="cpu",
        node="here",
    )
    engine = Engine(settings)
    await engine.start(manifest)
    try:
        return await engine.generate(request(PROMPT, 60))
    finally:
        await engine.stop()


@pytest.mark.parametrize("shape", MODELS)
def test_sglang_serves_what_was_trained(ranks, settings, tmp_path, shape):
    """Its log-probabilities are those that transformers computes from the same folder."""
    source, out = tmp_path / "source", tmp_path / "out"
    ranks.run("make_model", folder=str(source), shape=MODELS[shape])
    made = replace(settings(tp=2, shard_bytes=60_000), model_path=str(source))
    then = (("step", 1, payload(), lineage(), Version(4)), ("publish", Version(5), 1, Version(4), str(out)))
    manifest = ranks.run("calls", 2, settings=made, then=then)[0][1]
    assert len(list(out.glob("*.safetensors"))) > 1
    reply = asyncio.run(sampled(str(out), tmp_path, manifest))
    whole = np.array(PROMPT + reply.token_ids, np.int32)
    ((expected,),) = ranks.run("reference_logprobs", folder=str(out), sequences=[whole])
    assert reply.logprobs == pytest.approx(expected[len(PROMPT) :], abs=5e-5)


ADAPTERS = {"Qwen2.5, tied": Lora(4, targets=("q_proj", "v_proj", "gate_proj")), "Qwen3, untied": Lora(8)}


async def sampled_with_adapter(settings, base, adapter):
    """Replies of one server: of the base, then of the base with the adapters that it has loaded."""
    options = SamplingOptions(max_new_tokens=60, temperature=1.0, stop_token_ids=(), greedy=False).wire()
    message = {"input_ids": PROMPT, "sampling_params": options, "return_logprob": True}
    serving = await server.Server.launch(settings, base)
    try:
        post = serving.client._post
        await post("/load_lora_adapter", {"lora_name": "new", "lora_path": adapter.path})
        bodies = [await post("/generate", message | which) for which in ({}, {"lora_path": "new"})]
    finally:
        await serving.stop()
    return [ReplyStream(60).take(body) for body in bodies]


@pytest.mark.parametrize("shape", MODELS)
def test_sglang_loads_the_adapters_alone(ranks, settings, tmp_path, monkeypatch, shape):
    """And its log-probabilities are those of the learner that trains them."""
    plain, lora = server.server_arguments, ADAPTERS[shape]
    more = [
        "--enable-lora",
        "--max-lora-rank",
        "8",
        "--lora-backend",
        "torch_native",
        "--lora-target-modules",
        *TARGETS,
    ]
    monkeypatch.setattr(server, "server_arguments", lambda *given: [*plain(*given), *more])
    ranks.run("make_model", folder=str(tmp_path / "source"), shape=MODELS[shape])
    made = replace(settings(tp=2, lora=lora), model_path=str(tmp_path / "source"))
    checkpoint = str(tmp_path / "checkpoint")
    base, *_, adapter, _ = ranks.learner(
        made,
        ("publish", Version(4), 0, Version(3), str(tmp_path / "base")),
        *(("sft", batch) for batch in sft_batches(3, lr=2e-2)),
        ("publish_adapter", Version(5), 3, Version(4), str(tmp_path / "adapter")),
        ("save", checkpoint),
        world=2,
    )
    told = server.ServerSettings(
        device="cpu",
        dtype="float32",
        context_length=2048,
        max_total_tokens=20_000,
        max_running=16,
        seed=0,
        deterministic=False,
        lends=False,
        log=tmp_path / "server.log",
        start_timeout_s=600.0,
        stop_grace_s=5.0,
    )
    replies = asyncio.run(sampled_with_adapter(told, base, adapter))
    whole = [np.array(PROMPT + reply.token_ids, np.int32) for reply in replies]
    mask = (np.arange(len(whole[0])) >= len(PROMPT)).astype(np.uint8)
    samples = supervised([(tokens, mask) for tokens in whole])
    (before,) = ranks.run("prepass", settings=replace(made, tp=1), samples=samples)
    (after,) = ranks.run("prepass", settings=replace(made, tp=1), samples=samples, checkpoint=checkpoint)
    assert replies[0].logprobs == pytest.approx(before[0], abs=5e-5)
    assert replies[1].logprobs == pytest.approx(after[1], abs=5e-5)
    assert np.abs(after[1] - before[1]).max() > 0.1

"""What the learner publishes, in several files, is what SGLang serves."""

import asyncio
from dataclasses import replace

import numpy as np
import pytest
from learner_data import lineage, payload

from actors.engines.engine import Engine, EngineSettings
from actors.engines.messages import GenerateRequest
from protocol.weights import Version

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
        return await engine.generate(
            GenerateRequest(
                input_ids=PROMPT,
                max_new_tokens=60,
                temperature=1.0,
                stop_token_ids=(),
                seed=None,
                greedy=False,
                session="s",
                deadline_s=600.0,
            )
        )
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

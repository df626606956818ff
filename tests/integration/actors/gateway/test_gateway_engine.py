"""The gateway before a real SGLang server on the CPU: a trainer computes the log-probabilities that were captured.

The model has random weights, so what it says is no text that anybody would tokenise to the same ids again.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import anthropic
import numpy as np
import openai
import pytest
import torch
from transformers import AutoModelForCausalLM

from actors.engines.engine import SGLangEngine
from actors.engines.messages import GenerateReply, GenerateRequest, OnPartialReply
from actors.gateway.server import Gateway
from actors.tokens.chat_format import load_tokenizer
from launch.data.demo.model import build_demo_model
from launch.settings.data import ModelSettings
from learner.data.sequences import join_sequences
from tests.integration.actors.engines.tiny_qwen import manifest
from tests.support.actors.engine_specs import engine_spec
from tests.support.actors.gateways import SAMPLING, FakeLimits

pytestmark = [pytest.mark.sglang, pytest.mark.slow]

TEMPERATURE = 0.8
LIMITS = FakeLimits(max_new_tokens=40, context_tokens=900)
REPLIES = replace(SAMPLING, temperature=TEMPERATURE, reply_timeout_s=300.0)
TOOL = {"type": "function", "function": {"name": "shell", "description": "Run.", "parameters": {}}}


@dataclass
class Speaking:
    """The engine, which is seen to speak."""

    engine: SGLangEngine
    now: int = 0
    """Replies under way."""

    async def generate(self, request: GenerateRequest, watch: OnPartialReply | None = None) -> GenerateReply:
        self.now += 1
        try:
            return await self.engine.generate(request, watch)
        finally:
            self.now -= 1


async def by_openai(url: str, key: str, policy: Speaking) -> tuple[list[str], int]:
    """Three turns, the last two streamed: what was said, and how many pieces came while the policy spoke."""
    turns, early = list[str](), 0
    messages: list[object] = [{"role": "system", "content": "Go."}, {"role": "user", "content": "find words"}]
    async with openai.AsyncOpenAI(base_url=f"{url}/v1", api_key=key, max_retries=0) as client:
        for turn in range(3):
            if turn:
                stream = await client.chat.completions.create(
                    model="m", messages=messages, tools=[TOOL], tool_choice="none", stream=True
                )
                text = ""
                async for chunk in stream:
                    piece = chunk.choices[0].delta.content or ""
                    text += piece
                    early += bool(piece and policy.now)
            else:
                completion = await client.chat.completions.create(model="m", messages=messages, tools=[TOOL])
                text = completion.choices[0].message.content or ""
            messages += [{"role": "assistant", "content": text}, {"role": "user", "content": "go on"}]
            turns.append(text)
    return turns, early


async def by_anthropic(url: str, key: str) -> None:
    """One call, streamed."""
    async with (
        anthropic.AsyncAnthropic(base_url=url, api_key=key, max_retries=0) as client,
        client.messages.stream(model="m", max_tokens=30, messages=[{"role": "user", "content": "hello"}]) as stream,
    ):
        message = await stream.get_final_message()
    assert message.usage.output_tokens > 0


async def test_a_trainer_reproduces_the_log_probabilities_sampled_through_two_official_clients(tmp_path: Path) -> None:
    folder = tmp_path / "model"
    build_demo_model(folder, ModelSettings(), 7)
    engine = SGLangEngine(
        engine_spec(
            name="tiny",
            run_dir=tmp_path,
            model_path=str(folder),
            context_length=1000,
            max_total_tokens=8000,
            max_running=4,
            device="cpu",
            start_timeout_s=1200.0,
        )
    )
    tokenizer = load_tokenizer(str(folder))
    await engine.start(manifest(7, folder))
    try:
        policy, replies = Speaking(engine), list[str]()
        async with Gateway(tokenizer, policy.generate, model="demo") as gateway:
            with gateway.open_session(LIMITS, REPLIES, lambda turn, text, reply: replies.append(text)) as session:
                turns, early = await by_openai(gateway.url, gateway.api_key(session), policy)
                (talk,) = session.segments()
            with gateway.open_session(LIMITS, REPLIES, lambda turn, text, reply: None) as session:
                await by_anthropic(gateway.url, gateway.api_key(session))
                (hello,) = session.segments()
        assert turns == replies[:3], "a stream's pieces are not its whole"
        assert early > 2, "they came all at its end"
    finally:
        await engine.stop()
    text = tokenizer.decode(talk.token_ids.tolist(), skip_special_tokens=False)
    assert tokenizer.encode(text, add_special_tokens=False) != talk.token_ids.tolist(), "or this would show little"
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    for segment in (talk, hello):
        ((tokens, mask),) = join_sequences([segment])
        places = np.flatnonzero(mask)
        with torch.no_grad():
            logits = model(torch.tensor(tokens[None].astype(np.int64))).logits[0] / TEMPERATURE
        expected = logits.log_softmax(-1)[places - 1, tokens[places]]
        own = segment.loss_mask == 1
        np.testing.assert_allclose(segment.logprobs[own], expected.numpy(), atol=5e-5)
        assert set(segment.versions[own]) == {7}
    assert len([turn for turn in talk.turns if turn.key_version == 7]) == 3

"""If these fail, parity is measured on tokens of other weights than the learner's, or a run waits to measure it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from actors.engines.interface import Engine
from actors.engines.messages import EngineState, EngineStatus
from actors.runtime.remote import Remote
from actors.runtime.remote_errors import ActorDied
from actors.tokens.chat_format import load_chat_format
from launch.config import load_recipe
from launch.data.preparation import prepare_run
from launch.training.parity_samples import (
    ParitySampleSettings,
    ParitySamplingError,
    make_parity_sample_settings,
    sample_for_parity,
)
from protocol.weights import WeightVersion
from tests.support.actors.local_actors import LocalRemote
from tests.support.fakes.fake_parity_engine import LOGPROB, TOKENS, FakeParityEngine

NOW, OLD = WeightVersion(5), WeightVersion(4)
PROMPTS = ((1, 2, 3), (4, 5), (6,), (7, 8, 9))
SETTINGS = ParitySampleSettings(
    prompts=PROMPTS, stop_token_ids=(3,), temperature=0.7, context_tokens=6, deadline_s=20.0
)


def remotes(*engines: FakeParityEngine) -> list[Remote[Engine]]:
    return [LocalRemote(engine, f"run/1/engine-{index}") for index, engine in enumerate(engines)]


async def test_every_engine_that_serves_the_weights_samples_as_an_episode_would() -> None:
    first, old, last = (FakeParityEngine(lambda version=version: version) for version in (NOW, OLD, NOW))
    found = await sample_for_parity(SETTINGS, NOW, remotes(first, old, last))
    assert [len(engine.received_requests) for engine in (first, old, last)] == [2, 0, 2]
    requests = [*first.received_requests, *last.received_requests]
    assert {(each.temperature, each.greedy, each.stop_token_ids) for each in requests} == {(0.7, False, (3,))}
    assert len({each.session for each in requests}) == len(PROMPTS), "a prefix is another reply's"
    assert all(len(each.input_ids) + each.max_new_tokens <= 6 for each in requests)
    assert found.version == NOW
    for prompt, (ids, mask), logprobs in zip(PROMPTS, found.sequences, found.logprobs, strict=True):
        count = min(TOKENS, 6 - len(prompt))
        assert ids.tolist() == [*prompt, *[7] * count]
        assert mask.tolist() == [0] * len(prompt) + [1] * count
        assert logprobs.tolist() == [LOGPROB] * count
        assert (ids.dtype, mask.dtype, logprobs.dtype) == (np.int32, np.uint8, np.float32)


@pytest.mark.parametrize(
    ("state", "version", "why"),
    [
        (EngineState.UPDATING, OLD, r"no engine serves version 0\.5.*engine-0 is updating on 0\.4"),
        (EngineState.SERVING, OLD, r"engine-0 is serving on 0\.4"),
        (EngineState.RESTARTING, NOW, r"engine-0 is restarting on 0\.5"),
    ],
)
async def test_sampling_for_parity_does_not_wait_for_weights(
    state: EngineState, version: WeightVersion, why: str
) -> None:
    engine = FakeParityEngine(lambda: version, state=state)
    with pytest.raises(ParitySamplingError, match=why):
        await sample_for_parity(SETTINGS, NOW, remotes(engine))
    assert engine.received_requests == []


class DeadEngine:
    async def status(self) -> EngineStatus:
        raise ActorDied("engine-0", "killed")


async def test_a_lost_engine_fails_parity_sampling_at_once() -> None:
    with pytest.raises(ParitySamplingError, match="engine-0 does not answer"):
        await sample_for_parity(SETTINGS, NOW, [LocalRemote(DeadEngine(), "run/1/engine-0")])
    with pytest.raises(ParitySamplingError, match="its server is gone"):
        await sample_for_parity(SETTINGS, NOW, remotes(FakeParityEngine(lambda: NOW, lost=True)))


@pytest.mark.parametrize(
    "faulty", [FakeParityEngine(lambda: NOW, sampling=OLD), FakeParityEngine(lambda: NOW, mixed=True)]
)
async def test_replies_with_any_part_from_other_weights_do_not_count(faulty: FakeParityEngine) -> None:
    with pytest.raises(ParitySamplingError, match="engine-0 got other weights while it sampled"):
        await sample_for_parity(SETTINGS, NOW, remotes(faulty))
    found = await sample_for_parity(SETTINGS, NOW, remotes(faulty, FakeParityEngine(lambda: NOW)))
    assert [tuple(ids[: len(prompt)]) for prompt, (ids, _) in zip(PROMPTS[1::2], found.sequences, strict=True)] == [
        *PROMPTS[1::2]
    ]


def test_parity_prompts_are_those_of_episodes_and_the_same_after_each_start(tmp_path: Path) -> None:
    config = load_recipe(
        "demo",
        [
            *(f'run.dir="{tmp_path}"', "data.training_tasks=4", "rollout.groups_per_step=4", "model.layers=1"),
            *("evaluation.tasks_per_family=1", "warm_start.enabled=false"),
        ],
    )
    prepared = prepare_run(config, tmp_path / "run")
    settings = make_parity_sample_settings(config, prepared)
    assert settings == make_parity_sample_settings(config, prepare_run(config, tmp_path / "run"))
    assert len(settings.prompts) == 16
    assert len(set(settings.prompts)) == 4, "of few tasks, each oftener"
    chat = load_chat_format(str(prepared.model_path), {})
    for name, prompt in zip(prepared.training_ids, settings.prompts, strict=False):
        text = chat.tokenizer.decode(prompt, skip_special_tokens=False)
        assert prepared.tasks[name].instruction in text
    assert settings.stop_token_ids == (chat.turn_end_id,)

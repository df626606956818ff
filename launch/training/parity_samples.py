"""Samples the tokens of a parity check from engines that serve the learner's current weights.

Each prompt is the first one of a training task, in a session of its own, so that its prefix is computed by these
weights only; a reply with anything from other weights is left out.  Engines serve episodes meanwhile.  The check never
waits for weights: if no engine serves these, nothing is sampled, and :class:`ParitySamplingError` says why.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from actors.agents.registry import make_agent
from actors.engines.interface import Engine
from actors.engines.messages import EngineState, EngineStatus, GenerateReply, GenerateRequest
from actors.runtime.remote import Remote
from actors.tokens.chat_format import load_chat_format
from launch.config import RunConfig
from launch.data.preparation import PreparedRun
from protocol.errors import InfraError, LongshoreError
from protocol.processes.task_groups import task_group
from protocol.trajectory import Float32Array, Int32Array, Uint8Array
from protocol.weights import WeightVersion, format_version

_PROMPTS = 16
_NEW_TOKENS = 32
"""Maximum number of tokens of each reply; a few hundred in total."""
_ANSWER_S = 1.0
"""Seconds in which a healthy engine reports its status."""
_RETRY_S = 2.0
"""Seconds that an engine may take to serve again if it stopped just after it reported that it serves."""
_MARGIN_S = 5.0
_MAX_NAMED_ENGINES = 4


class ParitySamplingError(InfraError):
    """Nothing could be sampled; the message has the reason."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ParitySampleSettings:
    prompts: tuple[tuple[int, ...], ...]
    stop_token_ids: tuple[int, ...]
    temperature: float
    context_tokens: int
    deadline_s: float
    """Longest wait for a reply."""


def make_parity_sample_settings(config: RunConfig, prepared: PreparedRun) -> ParitySampleSettings:
    """Build the prompts, which are the same after each start; with fewer tasks than prompts, tasks repeat."""
    settings, agent = config.agent, make_agent(config.agent.make_spec())
    chat = load_chat_format(str(prepared.model_path), agent.offered_tools, thinking=settings.thinking.template_argument)
    first = [
        tuple(chat.encode_first_prompt(agent.opening_messages(prepared.tasks[name])))
        for name in prepared.training_ids[:_PROMPTS]
    ]
    return ParitySampleSettings(
        prompts=tuple(itertools.islice(itertools.cycle(first), _PROMPTS)),
        stop_token_ids=chat.stop_ids,
        temperature=settings.temperature,
        context_tokens=settings.context_tokens,
        deadline_s=config.engine.request_timeout_s,
    )


class ParitySamples(NamedTuple):
    version: WeightVersion
    sequences: list[tuple[Int32Array, Uint8Array]]
    """Token ids [T] and mask [T], 1 where they were sampled."""
    logprobs: list[Float32Array]
    """The engines' log-probabilities of the sampled tokens of each sequence."""


async def sample_for_parity(
    settings: ParitySampleSettings, version: WeightVersion, engines: Sequence[Remote[Engine]]
) -> ParitySamples:
    """Sample the prompts, distributed over the engines that serve ``version``.  Raises ParitySamplingError."""
    serving = await _serving(version, engines)
    async with task_group() as group:
        replies = [
            (
                prompt,
                group.create_task(_reply(engine, _request(settings, prompt, f"parity-{version}-{index}"), version)),
            )
            for index, (prompt, engine) in enumerate(zip(settings.prompts, itertools.cycle(serving), strict=False))
        ]
    found = [(prompt, reply) for prompt, task in replies if isinstance(reply := task.result(), GenerateReply)]
    if not found:
        raise next(why for _, task in replies if isinstance(why := task.result(), ParitySamplingError))
    return ParitySamples(
        version,
        [_sequence(prompt, reply.token_ids) for prompt, reply in found],
        [np.array(reply.logprobs, np.float32) for _, reply in found],
    )


async def _serving(version: WeightVersion, engines: Sequence[Remote[Engine]]) -> list[Remote[Engine]]:
    async with task_group() as group:
        queries = [(engine, group.create_task(_status(engine))) for engine in engines]
    statuses = [(engine, task.result()) for engine, task in queries]
    found = [engine for engine, status in statuses if status and _is_serving(status, version)]
    if not found:
        states = "; ".join(_describe_status(engine, status) for engine, status in statuses[:_MAX_NAMED_ENGINES])
        raise ParitySamplingError(
            f"no engine serves version {format_version(version)}, which the learner has: {states}"
        )
    return found


async def _status(engine: Remote[Engine]) -> EngineStatus | None:
    """Return the engine's status; None if it does not answer at once."""
    try:
        async with asyncio.timeout(_ANSWER_S):
            return await engine.call(Engine.status)
    except (InfraError, TimeoutError):
        return None


def _is_serving(status: EngineStatus, version: WeightVersion) -> bool:
    return status.state is EngineState.SERVING and status.version == version


def _describe_status(engine: Remote[Engine], status: EngineStatus | None) -> str:
    state = f"is {status.state} on {format_version(status.version)}" if status else "does not answer"
    return f"{_short(engine)} {state}"


def _short(engine: Remote[Engine]) -> str:
    return engine.name.rpartition("/")[2]


def _request(settings: ParitySampleSettings, prompt: Sequence[int], session: str) -> GenerateRequest:
    return GenerateRequest(
        input_ids=list(prompt),
        max_new_tokens=min(_NEW_TOKENS, settings.context_tokens - len(prompt)),
        temperature=settings.temperature,
        stop_token_ids=settings.stop_token_ids,
        seed=None,
        greedy=False,
        session=session,
        deadline_s=settings.deadline_s,
        patience_s=_RETRY_S,
    )


async def _reply(
    engine: Remote[Engine], request: GenerateRequest, version: WeightVersion
) -> GenerateReply | ParitySamplingError:
    """Return the reply, or the error as a value, so that the other replies count."""
    try:
        async with asyncio.timeout(request.deadline_s + _MARGIN_S):
            reply = await engine.call(Engine.generate, request)
    except (LongshoreError, TimeoutError) as error:
        return ParitySamplingError(str(error) or f"{_short(engine)} gave no reply within {request.deadline_s:g} s")
    if reply.mixed_prefix or {reply.key_version, *reply.versions} != {version}:
        return ParitySamplingError(f"{_short(engine)} got other weights while it sampled")
    return reply


def _sequence(prompt: Sequence[int], reply: Sequence[int]) -> tuple[Int32Array, Uint8Array]:
    sampled = np.zeros(len(prompt) + len(reply), np.uint8)
    sampled[len(prompt) :] = 1
    return np.array([*prompt, *reply], np.int32), sampled

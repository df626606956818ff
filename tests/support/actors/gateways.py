"""A gateway over a fake engine, on a real socket of the loopback device, and one session of it."""

from __future__ import annotations

import ssl
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass

import anthropic
import httpx
import openai

from actors.agents.call_format import CallFormat
from actors.agents.hermes import HERMES
from actors.engines.messages import StreamingGenerateFunction
from actors.engines.sampling import EpisodeSampling
from actors.gateway.server import Gateway
from actors.gateway.session import GatewaySession
from protocol.trajectory import ASIDES, ReplyRole
from tests.support.fakes.fake_policy import FakeTokenizer, ScriptedEngine


@dataclass(frozen=True)
class FakeLimits:
    max_turns: int = 20
    max_new_tokens: int = 500
    context_tokens: int = 4000
    total_tokens: int = 20_000


SAMPLING = EpisodeSampling(
    temperature=0.7,
    seed=11,
    greedy=False,
    session="train-g000001-s00-a0",
    reply_timeout_s=60.0,
    restart_timeout_s=0.0,
)


@dataclass
class GatewayClients:
    """The official API clients, and the engine and session behind the gateway."""

    gateway: Gateway
    session: GatewaySession
    engine: ScriptedEngine
    openai: openai.AsyncOpenAI
    anthropic: anthropic.AsyncAnthropic
    http: httpx.AsyncClient
    """Beneath them."""


@asynccontextmanager
async def open_gateway(
    *texts: str | Exception,
    generate: StreamingGenerateFunction | None = None,
    tokenizer: FakeTokenizer | None = None,
    retries: int = 0,
    quiet_s: float = 60.0,
    clock: Callable[[], float] = time.monotonic,
    calls: CallFormat = HERMES,
    untrained: frozenset[ReplyRole] = ASIDES,
    **limits: int,
) -> AsyncGenerator[GatewayClients]:
    """``texts``: what the engine says, reply by reply, unless it is another's ``generate``; ``limits`` of
    the session."""
    engine = ScriptedEngine([*texts])
    generate, tokenizer = generate or engine.generate, tokenizer or FakeTokenizer()
    async with Gateway(tokenizer, generate, model="policy", quiet_s=quiet_s, calls=calls) as gateway:
        with gateway.open_session(FakeLimits(**limits), SAMPLING, clock=clock, untrained=untrained) as session:
            async with httpx.AsyncClient(
                verify=ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
            ) as http:  # loads no authorities
                key, url = gateway.api_key(session), gateway.url
                first = openai.AsyncOpenAI(base_url=f"{url}/v1", api_key=key, max_retries=retries, http_client=http)
                second = anthropic.AsyncAnthropic(base_url=url, api_key=key, max_retries=retries, http_client=http)
                yield GatewayClients(gateway, session, engine, first, second, http)

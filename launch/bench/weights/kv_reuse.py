"""Measures the cost of weight updates for sessions with a history, by the rule for cached prefixes."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from actors.engines.messages import GenerateRequest
from launch.bench.weights.instrumented_engine import InstrumentedEngine
from launch.bench.weights.weight_versions import VersionSequence
from protocol.events import JsonValue

_REPLY_TOKENS = 32
_OUTPUT_TOKENS = 16
"""Number of output tokens of a command after each reply."""
_TURNS = 2
"""Number of turns that every session finishes between two updates."""
ROOM_TOKENS = 1024
"""Number of tokens by which a history may grow before a new session starts."""
_VOCABULARY = 300
_DEADLINE_S = 1800.0


@dataclass(slots=True)
class HistoryReuse:
    """The turns after a session's first one."""

    known_tokens: int = 0
    """Number of input tokens that the server has seen before: the previous turn's input and reply."""
    cached_tokens: int = 0
    """Number of these tokens that were not prefilled again."""
    sampled_tokens: int = 0
    seconds: float = 0.0
    updates: int = 0

    def add_turn(self, known: int, cached: int, sampled: int) -> None:
        self.known_tokens += known
        self.cached_tokens += min(known, cached)
        self.sampled_tokens += sampled

    def as_json(self) -> dict[str, JsonValue]:
        again = self.known_tokens - self.cached_tokens
        return {
            "prefix_hit_share": round(self.cached_tokens / self.known_tokens, 4) if self.known_tokens else None,
            "re_prefilled_tokens_per_update": round(again / self.updates, 1) if self.updates else None,
            "tokens_per_s": round(self.sampled_tokens / self.seconds, 1) if self.seconds else None,
            "updates": self.updates,
        }


@dataclass(slots=True)
class _LongSession:
    """Conversations one after the other, each starting with ``history`` tokens."""

    engine: InstrumentedEngine
    slot: int
    history: int
    reuse: HistoryReuse
    turns: int = 0

    async def converse(self, ended: Callable[[], None]) -> None:
        """Converse until cancelled; ``ended`` is called after each turn."""
        dice, number = random.Random(self.slot), 0
        while True:
            number += 1
            ids, known = dice.choices(range(3, _VOCABULARY), k=self.history), 0
            while len(ids) < self.history + ROOM_TOKENS - _REPLY_TOKENS - _OUTPUT_TOKENS:
                reply = await self.engine.generate(_request(ids, f"{self.history}-{self.slot}-{number}"))
                self.reuse.add_turn(known, reply.cached_tokens, len(reply.token_ids))
                ids += reply.token_ids
                known = len(ids) - 1  # the last token is sampled, and read with the next input only
                ids += dice.choices(range(3, _VOCABULARY), k=_OUTPUT_TOKENS)
                self.turns += 1
                ended()


async def measure_kv_reuse(
    engine: InstrumentedEngine, versions: VersionSequence, *, history: int, sessions: int, updates: int
) -> HistoryReuse:
    """Measure ``sessions`` sessions over a number of updates, with some turns after each."""
    reuse, changed = HistoryReuse(updates=updates), asyncio.Event()
    talking = [_LongSession(engine, slot, history, reuse) for slot in range(sessions)]
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(session.converse(changed.set)) for session in talking]
        await _await_turns(talking, changed)
        reuse.known_tokens = reuse.cached_tokens = reuse.sampled_tokens = 0
        begun = time.monotonic()
        for _ in range(updates):
            await engine.load_weights(versions.next_version("histories"), _DEADLINE_S)
            await _await_turns(talking, changed)
        reuse.seconds = time.monotonic() - begun
        for task in tasks:
            task.cancel()
    return reuse


async def _await_turns(talking: Sequence[_LongSession], changed: asyncio.Event) -> None:
    """Wait until every session has finished this many more turns."""
    goals = [session.turns + _TURNS for session in talking]
    while any(session.turns < goal for session, goal in zip(talking, goals, strict=True)):
        changed.clear()
        await changed.wait()


def _request(ids: list[int], session: str) -> GenerateRequest:
    return GenerateRequest(
        input_ids=list(ids),
        max_new_tokens=_REPLY_TOKENS,
        temperature=1.0,
        stop_token_ids=(),
        seed=None,
        greedy=False,
        session=session,
        deadline_s=_DEADLINE_S,
    )

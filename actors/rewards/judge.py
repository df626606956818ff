"""A process reward model: another model votes on each turn of an episode, and its failures are counted and neutral.

``async with Judge(settings) as judge: judged = await judge.judged(played)``.  A turn's score is the mean of its valid
votes, 1 or −1 each; a turn without one has none.  An answer that says neither, one that comes too late, and a server
that is down or refuses are failed votes, each counted by its kind: none of them raises, gives a number, or asks again.
Everything has a deadline: a vote, and all votes on an episode together; so many votes of a worker are under way at once
as the settings say.

OpenClaw's process reward model (terminal-rl/agent/prm_agent.py; the votes are toolcall-rl's, generate_with_retool.py),
whose failures are 0 and look like a judgement.
"""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from enum import StrEnum
from string import Template
from types import TracebackType
from typing import NamedTuple, Self, TypeAlias

import aiohttp
import msgspec

from actors.rewards.episode_result import EpisodeResult, ModelTurn
from actors.rewards.settings import JudgeSettings
from protocol.truncation import truncate_middle

_MOST_BYTES = 1 << 20
"""Of an answer; more is none."""
_HEAD, _TAIL = 2, 2
"""Turns before the judged one that are shown: the episode's first, and the last before it."""
_TURN_CHARS, _STEP_CHARS = 2000, 5000
"""Shown of each of those, and of the judged one, its result and the task."""
_CUT = "left out"
_BOXED = re.compile(r"\\boxed\{([^{}]*)\}")
_SAID = {"1": 1.0, "+1": 1.0, "-1": -1.0, "\N{MINUS SIGN}1": -1.0}


class VoteFailure(StrEnum):
    INVALID = "invalid"
    """The answer says neither 1 nor −1."""
    SLOW = "slow"
    """It was not there in time."""
    DOWN = "down"
    """The server could not be reached, broke off, or refused."""


Vote: TypeAlias = float | VoteFailure


class JudgeScores(NamedTuple):
    scores: tuple[float | None, ...]
    """Of each turn; None where no vote was valid."""
    votes: int
    """Valid ones."""
    failures: Mapping[VoteFailure, int]

    @property
    def mean(self) -> float:
        """Over the turns that have a score; 0 where none has."""
        given = [score for score in self.scores if score is not None]
        return sum(given) / len(given) if given else 0.0


def tally_votes(votes: Sequence[Sequence[Vote]]) -> JudgeScores:
    """The votes on each turn, taken together."""
    scores: list[float | None] = []
    failures: Counter[VoteFailure] = Counter()
    valid = 0
    for turn in votes:
        said = [vote for vote in turn if not isinstance(vote, VoteFailure)]
        failures.update(vote for vote in turn if isinstance(vote, VoteFailure))
        scores.append(sum(said) / len(said) if said else None)
        valid += len(said)
    return JudgeScores(tuple(scores), valid, failures)


def parse_vote(text: str) -> Vote:
    """The last ``\\boxed{…}`` of an answer."""
    found = _BOXED.findall(text)
    return _SAID.get(found[-1].strip(), VoteFailure.INVALID) if found else VoteFailure.INVALID


def build_judge_prompt(prompt: str, result: EpisodeResult, index: int) -> str:
    """The prompt about turn ``index``.  What it shows of the episode is not read for further marks."""
    before, turn = result.turns[:index], result.turns[index]
    left_out = len(before) - _HEAD - _TAIL
    shown = [_shown(number, each) for number, each in enumerate(before)]
    if left_out > 0:
        shown = [*shown[:_HEAD], f"({left_out} turns {_CUT})", *shown[-_TAIL:]]
    return Template(prompt).safe_substitute(
        task=truncate_middle(result.instruction, _STEP_CHARS, _CUT),
        history="\n\n".join(shown) or "(nothing)",
        step=truncate_middle(turn.text, _STEP_CHARS, _CUT),
        result=truncate_middle(_result(turn), _STEP_CHARS, _CUT),
    )


def _shown(number: int, turn: ModelTurn) -> str:
    text, result = (truncate_middle(each, _TURN_CHARS, _CUT) for each in (turn.text, _result(turn)))
    return f"[turn {number + 1}]\n{text}\n[result]\n{result}"


def _result(turn: ModelTurn) -> str:
    if turn.malformed and not turn.calls:
        return "(the call could not be read)"
    return "\n".join(call.output for call in turn.calls) or "(none)"


class _Message(msgspec.Struct):
    content: str | None = None


class _Choice(msgspec.Struct):
    message: _Message


class _Answer(msgspec.Struct):
    choices: list[_Choice]


_DECODER = msgspec.json.Decoder(_Answer)


class Judge:
    """One worker's.  An async context manager."""

    def __init__(self, settings: JudgeSettings) -> None:
        self._settings = settings
        self._room = asyncio.Semaphore(settings.concurrency)
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Self:
        key = self._settings.key
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0),
            timeout=aiohttp.ClientTimeout(total=None),
            headers={"Authorization": f"Bearer {key}"} if key else {},
            trust_env=False,
        )
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._session is not None:
            await self._session.close()

    async def score_episode(self, result: EpisodeResult) -> JudgeScores:
        """Never raises for what a judge does."""
        settings = self._settings
        votes: list[list[Vote]] = [[VoteFailure.SLOW] * settings.votes for _ in result.turns]
        with suppress(TimeoutError):  # a vote that is not there by then stays slow
            async with asyncio.timeout(settings.timeout_s), asyncio.TaskGroup() as group:
                for index, own in enumerate(votes):
                    question = build_judge_prompt(settings.prompt, result, index)
                    for number in range(settings.votes):
                        group.create_task(self._vote(question, own, number))
        return tally_votes(votes)

    async def _vote(self, question: str, votes: list[Vote], number: int) -> None:
        async with self._room:
            try:
                async with asyncio.timeout(self._settings.vote_timeout_s):
                    votes[number] = await self._asked(question)
            except TimeoutError:
                votes[number] = VoteFailure.SLOW
            except (aiohttp.ClientError, OSError):
                votes[number] = VoteFailure.DOWN

    async def _asked(self, question: str) -> Vote:
        if self._session is None:
            raise RuntimeError("the judge is not open")
        settings = self._settings
        message = {
            "model": settings.model,
            "messages": [{"role": "user", "content": question}],
            "temperature": settings.temperature,
            "max_tokens": settings.max_new_tokens,
        }
        async with self._session.post(f"{settings.url}/chat/completions", json=message) as response:
            if response.status != 200:
                return VoteFailure.DOWN
            body = bytearray()
            async for piece in response.content.iter_any():
                body += piece
                if len(body) > _MOST_BYTES:
                    return VoteFailure.INVALID
        try:
            answer = _DECODER.decode(body)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return VoteFailure.INVALID
        return parse_vote(answer.choices[0].message.content or "") if answer.choices else VoteFailure.INVALID

"""A process reward model: another model votes on each turn of an episode; its failures are counted and neutral.

``async with open_judge(spec) as judge: scores = await judge.score_episode(result)``.  A turn's score is the mean of its
valid votes, each 1 or −1; a turn without a valid vote has no score.  An invalid reply, a late reply, and a model that
is down or refuses are failed votes, counted by kind: none of them raises, becomes a number or is retried.  Each vote
has a deadline, and so have all votes on an episode together; the settings bound the concurrent votes of a worker.

This is OpenClaw's process reward model (terminal-rl/agent/prm_agent.py; the votes are those of toolcall-rl,
generate_with_retool.py), whose failures are 0 and look like a judgement.
"""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from string import Template
from typing import NamedTuple, TypeAlias

from actors.chat_api.client import ChatApiClient
from actors.engines.messages import GenerateFunction
from actors.rewards.episode_result import EpisodeResult, ModelTurn
from actors.rewards.judge_models import (
    MAX_REPLY_BYTES,
    ApiJudgeModel,
    AskQuestion,
    EngineJudgeModel,
    JudgeModel,
    VoteFailure,
)
from actors.rewards.settings import JudgeSettings, JudgeSpec
from actors.tokens.chat_format import load_chat_format
from protocol.truncation import truncate_middle

_OMITTED = "left out"
_HEAD, _TAIL = 2, 2
"""Number of turns shown before the judged one: the episode's first, and the last before it."""
_HISTORY_CHARS, _JUDGED_CHARS = 2000, 5000
"""Characters shown of each of those, and of the judged turn, its result and the task."""
_BOXED = re.compile(r"\\boxed\{([^{}]*)\}")
_VOTES = {"1": 1.0, "+1": 1.0, "-1": -1.0, "\N{MINUS SIGN}1": -1.0}


Vote: TypeAlias = float | VoteFailure


class JudgeScores(NamedTuple):
    """The scores of one episode."""

    scores: tuple[float | None, ...]
    """The score of each turn; None if no vote on it was valid."""
    votes: int
    """Number of valid votes."""
    failures: Mapping[VoteFailure, int]

    @property
    def mean(self) -> float:
        """The mean over the turns that have a score; 0 if none has."""
        given = [score for score in self.scores if score is not None]
        return sum(given) / len(given) if given else 0.0


def tally_votes(votes: Sequence[Sequence[Vote]]) -> JudgeScores:
    """Return the scores from the votes on each turn."""
    scores: list[float | None] = []
    failures: Counter[VoteFailure] = Counter()
    valid = 0
    for turn in votes:
        valid_votes = [vote for vote in turn if not isinstance(vote, VoteFailure)]
        failures.update(vote for vote in turn if isinstance(vote, VoteFailure))
        scores.append(sum(valid_votes) / len(valid_votes) if valid_votes else None)
        valid += len(valid_votes)
    return JudgeScores(tuple(scores), valid, failures)


def parse_vote(text: str) -> Vote:
    """Return the vote in the last ``\\boxed{…}`` of a reply."""
    found = _BOXED.findall(text)
    return _VOTES.get(found[-1].strip(), VoteFailure.INVALID) if found else VoteFailure.INVALID


def build_judge_prompt(prompt: str, result: EpisodeResult, index: int) -> str:
    """Return the prompt about turn ``index``.  Placeholders in the episode's own text are not substituted."""
    before, turn = result.turns[:index], result.turns[index]
    omitted = len(before) - _HEAD - _TAIL
    shown = [_show_turn(number, each) for number, each in enumerate(before)]
    if omitted > 0:
        shown = [*shown[:_HEAD], f"({omitted} turns {_OMITTED})", *shown[-_TAIL:]]
    return Template(prompt).safe_substitute(
        task=truncate_middle(result.instruction, _JUDGED_CHARS, _OMITTED),
        history="\n\n".join(shown) or "(nothing)",
        turn=truncate_middle(turn.text, _JUDGED_CHARS, _OMITTED),
        result=truncate_middle(_result(turn), _JUDGED_CHARS, _OMITTED),
    )


def _show_turn(number: int, turn: ModelTurn) -> str:
    text, result = (truncate_middle(each, _HISTORY_CHARS, _OMITTED) for each in (turn.text, _result(turn)))
    return f"[turn {number + 1}]\n{text}\n[result]\n{result}"


def _result(turn: ModelTurn) -> str:
    if turn.malformed and not turn.calls:
        return "(the call could not be read)"
    return "\n".join(call.output for call in turn.calls) or "(none)"


class Judge:
    """One worker's judge."""

    def __init__(self, settings: JudgeSettings, prompt: str, model: JudgeModel) -> None:
        self._settings, self._prompt, self._model = settings, prompt, model
        self._slots = asyncio.Semaphore(settings.concurrency)

    async def score_episode(self, result: EpisodeResult) -> JudgeScores:
        """Return the scores of an episode's turns.  Failures of the judge never raise."""
        settings = self._settings
        votes: list[list[Vote]] = [[VoteFailure.SLOW] * settings.votes for _ in result.turns]
        with suppress(TimeoutError):  # votes missing by then stay slow
            async with asyncio.timeout(settings.timeout_s), asyncio.TaskGroup() as group:
                for index, turn_votes in enumerate(votes):
                    ask = await self._model.prepare(build_judge_prompt(self._prompt, result, index))
                    for number in range(settings.votes):
                        group.create_task(self._cast_vote(ask, turn_votes, number))
        return tally_votes(votes)

    async def _cast_vote(self, ask: AskQuestion, votes: list[Vote], number: int) -> None:
        async with self._slots:
            try:
                async with asyncio.timeout(self._settings.vote_timeout_s):
                    reply = await ask()
            except TimeoutError:
                reply = VoteFailure.SLOW
            votes[number] = reply if isinstance(reply, VoteFailure) else parse_vote(reply)


@asynccontextmanager
async def open_judge(spec: JudgeSpec, engines: Sequence[GenerateFunction] = ()) -> AsyncGenerator[Judge]:
    """Open a worker's judge over connections of its own, or over ``engines`` that serve the model in
    ``spec.model_path``.  Raises UserError if that model has no usable tokenizer."""
    if spec.model_path:
        chat = await asyncio.to_thread(load_chat_format, spec.model_path, {})
        yield Judge(spec.settings, spec.prompt, EngineJudgeModel(spec, chat, engines))
        return
    async with ChatApiClient(spec.settings.url, spec.key, max_reply_bytes=MAX_REPLY_BYTES) as client:
        yield Judge(spec.settings, spec.prompt, ApiJudgeModel(spec, client))

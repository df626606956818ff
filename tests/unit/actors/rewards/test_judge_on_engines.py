"""If these fail, a judge on a run's own engines loses votes that it could have, or its failure holds up episodes."""

from __future__ import annotations

import pytest

from actors.engines.messages import EngineBusy, EngineUnavailable, RequestRefused, RequestTimedOut
from actors.rewards.episode_result import EpisodeResult, ModelTurn
from actors.rewards.judge import Judge, JudgeScores
from actors.rewards.judge_models import EngineJudgeModel, VoteFailure
from actors.rewards.settings import JudgeSettings, JudgeSpec
from actors.tokens.chat_format import ChatFormat
from protocol.trajectory import EpisodeStatus
from tests.support.fakes.fake_judge import BAD, GOOD
from tests.support.fakes.fake_policy import FakeTokenizer, ScriptedEngine, ids_of

QUESTION = "$task|$turn"
CONTEXT = 1000


async def judged(*engines: ScriptedEngine, turns: int = 1, **settings: float) -> JudgeScores:
    """Score an episode, one vote after the other."""
    one_by_one = JudgeSettings.model_validate({"votes": 1, "concurrency": 1, **settings})
    spec = JudgeSpec(one_by_one, QUESTION, model_path="/judge", context_tokens=CONTEXT)
    model = EngineJudgeModel(spec, ChatFormat(FakeTokenizer()), [engine.generate for engine in engines])
    played = tuple(ModelTurn(f"step {n}") for n in range(turns))
    result = EpisodeResult("do", EpisodeStatus.COMPLETED, (), 0.0, False, 0.0, played)
    return await Judge(one_by_one, QUESTION, model).score_episode(result)


async def test_the_votes_of_an_engine_are_those_that_its_replies_say() -> None:
    engine = ScriptedEngine([f"I think so.\n{GOOD}\x01", f"No. {BAD}\x01", "Hm.\x01"])
    scores = await judged(engine, votes=3)
    assert (scores.scores, scores.votes, dict(scores.failures)) == ((0.0,), 2, {VoteFailure.INVALID: 1})
    sent = engine.received_requests
    assert {tuple(request.input_ids) for request in sent} == {tuple(ids_of("<user>do|step 0\x01\n<assistant>"))}
    assert len({request.session for request in sent}) == 1, "votes on one turn share its prefix"


@pytest.mark.parametrize(("temperature", "greedy"), [(0.0, True), (0.6, False)])
async def test_an_engine_samples_votes_as_the_settings_say(temperature: float, *, greedy: bool) -> None:
    engine = ScriptedEngine([GOOD])
    await judged(engine, temperature=temperature, vote_timeout_s=7.0, max_new_tokens=90)
    (sent,) = engine.received_requests
    assert (sent.greedy, sent.temperature) == (greedy, temperature or 1.0)
    assert (sent.deadline_s, sent.max_new_tokens, sent.seed) == (7.0, 90, None)


async def test_a_reply_is_as_long_as_the_question_leaves_room_for() -> None:
    engine = ScriptedEngine([GOOD])
    await judged(engine, max_new_tokens=4096)
    (sent,) = engine.received_requests
    assert sent.token_budget == CONTEXT


@pytest.mark.parametrize(
    ("error", "failure"),
    [
        (RequestTimedOut("it samples slowly"), VoteFailure.SLOW),
        (EngineUnavailable("its server is down"), VoteFailure.DOWN),
        (EngineBusy("its queue is full"), VoteFailure.DOWN),
        (RequestRefused("the question is too long"), VoteFailure.DOWN),
    ],
)
async def test_a_failure_of_an_engine_is_a_failed_vote_and_is_not_asked_again(
    error: Exception, failure: VoteFailure
) -> None:
    engine = ScriptedEngine([error])
    scores = await judged(engine)
    assert (scores.scores, scores.votes, dict(scores.failures)) == ((None,), 0, {failure: 1})
    assert len(engine.received_requests) == 1


async def test_an_engine_that_is_down_gets_no_questions_while_another_serves() -> None:
    """Otherwise the engine that fails at once would have the least load and get every question."""
    down, up = ScriptedEngine([EngineUnavailable("its server is down")] * 9), ScriptedEngine([GOOD] * 9)
    scores = await judged(down, up, turns=9)
    assert (scores.votes, dict(scores.failures)) == (8, {VoteFailure.DOWN: 1})


async def test_questions_are_spread_over_the_engines() -> None:
    engines = [ScriptedEngine([GOOD] * 4) for _ in range(2)]
    assert (await judged(*engines, turns=4)).votes == 4
    assert [len(engine.received_requests) for engine in engines] == [2, 2]

"""If these fail, a judge's failure passes for a judgement, or stands a worker's episodes still."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from actors.rewards.episode_result import EpisodeResult, ModelTurn, ToolCallRecord
from actors.rewards.judge import JudgeScores, build_judge_prompt, open_judge, parse_vote, tally_votes
from actors.rewards.judge_models import VoteFailure
from actors.rewards.prompts import list_judge_prompts, load_judge_prompt
from actors.rewards.settings import JudgeSettings, JudgeSpec
from protocol.errors import UserError
from protocol.trajectory import EpisodeStatus
from tests.support.fakes.fake_judge import BAD, GOOD, FaultyReply, serve_fake_judge, unreachable_url

PROMPT = "$task|$history|$turn|$result"
PLAYED = EpisodeResult("count the lines", EpisodeStatus.COMPLETED, (), 0.0, False, 0.0)
LONG_S = 60.0
"""Nothing that goes right comes near it."""


def episode(turns: int) -> EpisodeResult:
    model_turns = (
        ModelTurn(f"step {n}", (ToolCallRecord("shell_exec", f"wc -l {n}", f"{n} lines", 0),)) for n in range(turns)
    )
    return replace(PLAYED, turns=tuple(model_turns))


async def judged(url: str, played: EpisodeResult, **changes: Any) -> JudgeScores:
    plain = {
        "url": url,
        "model": "judge",
        "votes": 1,
        "temperature": 0.0,
        "vote_timeout_s": LONG_S,
        "timeout_s": LONG_S,
    }
    key = changes.pop("key", "")
    settings = JudgeSettings.model_validate(plain).model_copy(update=changes)
    async with open_judge(JudgeSpec(settings, PROMPT, key)) as judge:
        return await judge.score_episode(played)


def failed(**kinds: int) -> dict[VoteFailure, int]:
    return {VoteFailure(kind): number for kind, number in kinds.items()}


@pytest.mark.parametrize(
    ("text", "vote"),
    [
        (r"\boxed{1}", 1.0),
        (r"\boxed{+1}", 1.0),
        (r"\boxed{ -1 }", -1.0),
        ("\\boxed{\N{MINUS SIGN}1}", -1.0),
        (r"\boxed{1} no: \boxed{-1}", -1.0),
        (r"\boxed{-1} and more words than anybody reads, " + "on and on " * 20, -1.0),
        (r"\boxed{0}", VoteFailure.INVALID),
        (r"\boxed{0.5}", VoteFailure.INVALID),
        (r"\boxed{good}", VoteFailure.INVALID),
        (r"\boxed{1", VoteFailure.INVALID),
        ("\\boxed{ 1\n}", 1.0),
        ("\\boxed{" + " " * 100_000, VoteFailure.INVALID),
        ("1", VoteFailure.INVALID),
        ("", VoteFailure.INVALID),
    ],
)
def test_a_vote_is_one_minus_one_or_a_failure(text: str, vote: float | VoteFailure) -> None:
    assert parse_vote(text) == vote


def test_a_score_is_the_mean_of_valid_votes_or_missing_without_any() -> None:
    slow, down = VoteFailure.SLOW, VoteFailure.DOWN
    found = tally_votes([[1.0, 1.0, -1.0], [1.0, slow, slow], [slow, down, down], []])
    assert found.scores == (pytest.approx(1 / 3), 1.0, None, None)
    assert (found.votes, dict(found.failures)) == (4, failed(slow=3, down=2))
    assert found.mean == pytest.approx(2 / 3), "over the turns that have a score"
    assert tally_votes([[slow]]).mean == 0.0


async def test_each_turn_gets_the_configured_number_of_votes() -> None:
    async with serve_fake_judge(GOOD) as judge:
        found = await judged(judge.url, episode(3), votes=2, temperature=0.6, max_new_tokens=99)
        assert (found.scores, found.votes, dict(found.failures)) == ((1.0, 1.0, 1.0), 6, {})
        first = judge.received_requests[0]
    assert (first["model"], first["temperature"], first["max_tokens"]) == ("judge", 0.6, 99)
    assert judge.keys == [None] * 6


async def test_differing_votes_are_averaged() -> None:
    async with serve_fake_judge(GOOD, BAD, BAD) as judge:
        found = await judged(judge.url, episode(1), votes=3)
    assert (found.scores, found.votes) == ((pytest.approx(-1 / 3),), 3)


async def test_the_api_key_is_sent_and_left_out_of_the_repr() -> None:
    async with serve_fake_judge(GOOD) as judge:
        await judged(judge.url, episode(1), key="s3cret")
        assert judge.keys == ["Bearer s3cret"]
    assert "s3cret" not in repr(JudgeSpec(JudgeSettings(), "", "s3cret"))


@pytest.mark.parametrize(
    ("odd", "kind"),
    [
        ("no mark at all", "invalid"),
        (FaultyReply.NO_JSON, "invalid"),
        (FaultyReply.NO_CHAT, "invalid"),
        (FaultyReply.NO_CHOICE, "invalid"),
        (FaultyReply.NO_CONTENT, "invalid"),
        (FaultyReply.ENDLESS, "invalid"),
        (FaultyReply.BREAKS_OFF, "down"),
        (FaultyReply.REFUSES, "down"),
    ],
)
async def test_invalid_judge_replies_are_counted_and_neutral(odd: str | FaultyReply, kind: str) -> None:
    async with serve_fake_judge(odd) as judge:
        found = await judged(judge.url, episode(2), votes=2)
    assert (found.scores, found.votes, dict(found.failures)) == ((None, None), 0, failed(**{kind: 4}))


async def test_valid_votes_count_if_half_of_the_votes_fail() -> None:
    async with serve_fake_judge(GOOD, FaultyReply.REFUSES) as judge:
        found = await judged(judge.url, episode(2), votes=2, concurrency=1)
    assert (found.scores, found.votes, dict(found.failures)) == ((1.0, 1.0), 2, failed(down=2))


async def test_a_slow_vote_does_not_affect_other_votes() -> None:
    async with serve_fake_judge(GOOD, FaultyReply.HANGS) as judge:
        found = await judged(judge.url, episode(1), votes=2, concurrency=1, vote_timeout_s=1.5)
    assert (found.scores, found.votes, dict(found.failures)) == ((1.0,), 1, failed(slow=1))


async def test_scoring_stops_at_its_timeout_and_keeps_the_votes_received() -> None:
    """Otherwise a hanging judge would hold all slots of a worker."""
    async with serve_fake_judge(GOOD, FaultyReply.HANGS) as judge:
        found = await judged(judge.url, episode(3), votes=1, concurrency=1, timeout_s=1.5)
        assert len(judge.received_requests) == 2, "the third had no room until its time was up"
    assert (found.scores, found.votes, dict(found.failures)) == ((1.0, None, None), 1, failed(slow=2))


async def test_a_dead_judge_is_counted_and_neutral() -> None:
    found = await judged(unreachable_url(), episode(2), votes=2)
    assert (found.scores, dict(found.failures)) == ((None, None), failed(down=4))


async def test_concurrent_votes_are_limited_across_all_episodes_of_a_worker() -> None:
    async with serve_fake_judge(GOOD) as server:
        spec = JudgeSpec(JudgeSettings(url=server.url, model="j", votes=3, concurrency=2), PROMPT)
        async with open_judge(spec) as judge, asyncio.TaskGroup() as group:
            for _ in range(3):
                group.create_task(judge.score_episode(episode(4)))
        assert len(server.received_requests) == 36
        assert server.max_active_requests <= 2


async def test_votes_are_asked_for_side_by_side() -> None:
    async with serve_fake_judge(FaultyReply.HANGS) as server:
        spec = JudgeSpec(JudgeSettings(url=server.url, model="j", votes=3, concurrency=2), PROMPT)
        async with open_judge(spec) as judge:
            scoring = asyncio.create_task(judge.score_episode(episode(4)))
            while server.active_requests < 2:  # noqa: ASYNC110  the fake only counts
                await asyncio.sleep(0.01)
            scoring.cancel()
            await asyncio.wait([scoring])


async def test_a_cancelled_episode_leaves_no_vote_running() -> None:
    async with serve_fake_judge(FaultyReply.HANGS) as server:
        spec = JudgeSpec(JudgeSettings(url=server.url, model="j", votes=1), PROMPT)
        async with open_judge(spec) as judge:
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.2):
                    await judge.score_episode(episode(1))


async def test_an_episode_without_turns_asks_no_judge() -> None:
    assert (await judged(unreachable_url(), episode(0))).scores == ()


def test_a_judge_sees_the_first_and_the_last_turns_before_the_one_it_judges() -> None:
    shown = build_judge_prompt(PROMPT, episode(8), 6)
    task, history, step, result = shown.split("|")
    assert (task, step, result) == ("count the lines", "step 6", "6 lines")
    assert [f"step {n}" in history for n in range(8)] == [True, True, False, False, True, True, False, False]
    assert "(2 turns left out)" in history
    assert build_judge_prompt(PROMPT, episode(1), 0).split("|")[1] == "(nothing)"


def test_the_judge_prompt_is_bounded_and_placeholders_in_texts_are_not_expanded() -> None:
    turn = ModelTurn("$task ${result} $$ " + "x" * 50_000, (ToolCallRecord("t", "", "y" * 50_000),))
    shown = build_judge_prompt(PROMPT, replace(PLAYED, instruction="z" * 50_000, turns=(turn,) * 6), 5)
    assert len(shown) < 40_000
    assert "$task ${result} $$ x" in shown
    broken = replace(PLAYED, turns=(ModelTurn("<tool_call>{", malformed=True),))
    assert build_judge_prompt(PROMPT, broken, 0).endswith("|(the call could not be read)")


def test_built_in_judge_prompts_ask_for_a_vote_that_is_parsed(tmp_path) -> None:
    assert "turn-1" in list_judge_prompts()
    for name in list_judge_prompts():
        text = load_judge_prompt(name)
        assert parse_vote(text.replace(r"\boxed{-1}", "")) == 1.0
        assert all(f"${mark}" in text for mark in ("task", "history", "turn", "result"))
    mine = tmp_path / "mine.txt"
    mine.write_text("$task: $turn?")
    assert load_judge_prompt(str(mine)) == "$task: $turn?"


@pytest.mark.parametrize(
    ("prompt", "says"),
    [("turn-0", "did you mean 'turn-1'?"), ("./none.txt", "cannot be read"), ("./mine.txt", "lacks $turn")],
)
def test_a_prompt_that_cannot_be_used_is_refused(prompt: str, says: str, tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.txt").write_text("$task")
    with pytest.raises(UserError) as caught:
        load_judge_prompt(prompt)
    assert says in str(caught.value)

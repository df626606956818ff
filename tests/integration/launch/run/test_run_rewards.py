"""If this fails, a run is trained for something else than its configuration says, or a judge's failures stop it."""

from __future__ import annotations

import asyncio

import pytest

from protocol.run_directory.trajectory_export import read_export_index, read_exported_trajectory
from protocol.trajectory import TurnKind
from tests.support.fakes.fake_judge import BAD, GOOD, FaultyReply, serve_fake_judge
from tests.support.runs.cluster_runs import MiniRuns
from tests.support.runs.trajectory_accounting import assert_accounting_balances

pytestmark = [pytest.mark.docker, pytest.mark.ray, pytest.mark.sglang, pytest.mark.slow]


async def test_a_run_trains_turns_on_judge_votes_in_addition_to_the_episode_reward(mini_runs: MiniRuns) -> None:
    async with serve_fake_judge(GOOD, BAD, GOOD, FaultyReply.REFUSES) as judge:
        keys = {
            "rollout.reward": "tcr",
            "rollout.dynamic_sampling": "false",
            "learner.advantage": "turn",
            "judge.enabled": "true",
            "judge.url": judge.url.removesuffix("/v1"),
            "judge.votes": "3",
            "judge.coefficient": "0.5",
            "evaluation.tasks_per_family": "0",
        }
        options = [word for key, value in keys.items() for word in ("--set", f"{key}={value}")]
        run = mini_runs.start("rewards", *options, "--steps", "2")
        assert (await asyncio.to_thread(run.succeed))["steps"] == 2
    assert_accounting_balances(run.path)
    trajectories = [read_exported_trajectory(run.path, entry) for entry in read_export_index(run.path)]
    assert len(trajectories) >= 32
    votes = failed = 0
    for each in trajectories:
        parts, turns = each.reward.parts, [turn for turn in each.segments[0].turns if turn.kind is TurnKind.MODEL]
        assert parts["all_passed"] == float(each.passed)
        assert (each.reward.total == 1.0) is each.passed
        assert parts["judge_votes"] + parts["judge_down"] == 3 * len(turns)
        assert all(abs(turn.reward) <= 0.5 for turn in turns)
        votes, failed = votes + parts["judge_votes"], failed + parts["judge_down"]
    assert votes > 2 * failed > 0
    assert any(turn.reward for each in trajectories for turn in each.segments[0].turns)
    steps = run.events("learner.step")
    assert all(0 < event["part_judge_down"] < event["part_judge_votes"] for event in steps)

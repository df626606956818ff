"""From the configuration to what workers are told of rewards: a judge's prompt and key are read here, once for all."""

from __future__ import annotations

from urllib.parse import urlsplit

from actors.rewards.prompts import load_judge_prompt
from actors.rewards.settings import JudgeSettings, RewardSettings
from launch.config import RunConfig
from launch.config.reward import JudgeSection
from protocol.errors import UserError


def make_reward_settings(config: RunConfig) -> RewardSettings:
    """Raises UserError where a judge's prompt or key cannot be read."""
    reward = config.reward
    return RewardSettings(
        outcome=config.rollout.reward,
        bonus=reward.bonus,
        discount=reward.discount,
        process=reward.process,
        process_cap=reward.process_cap,
        process_into=reward.process_into,
        judge=_judge(config.judge) if config.judge.enabled else None,
    )


def _judge(judge: JudgeSection) -> JudgeSettings:
    return JudgeSettings(
        url=judge.url if urlsplit(judge.url).path else f"{judge.url}/v1",
        model=judge.model,
        prompt=load_judge_prompt(judge.prompt),
        key=_key(judge),
        votes=judge.votes,
        coefficient=judge.coefficient,
        into=judge.into,
        temperature=judge.temperature,
        max_new_tokens=judge.max_new_tokens,
        vote_timeout_s=judge.vote_timeout_s,
        timeout_s=judge.timeout_s,
        concurrency=judge.concurrency,
    )


def _key(judge: JudgeSection) -> str:
    if judge.key_file is None:
        return ""
    try:
        key = judge.key_file.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"judge.key_file = '{judge.key_file}' cannot be read: {error}") from error
    if not key.isascii() or not key.isprintable() or not key:
        raise UserError(f"judge.key_file = '{judge.key_file}' holds no key: write it there, alone on one line")
    return key

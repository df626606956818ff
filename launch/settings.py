"""From the configuration to each room's own settings."""

from __future__ import annotations

from pathlib import Path

from launch.config import Control, RunConfig
from learner.settings import LearnerSettings


def learner_settings(config: RunConfig, model_path: Path) -> LearnerSettings:
    learner = config.learner
    return LearnerSettings(
        model_path=str(model_path),
        device=learner.device,
        dtype=learner.dtype,
        tp=learner.tp,
        pp=learner.pp,
        cp=learner.cp,
        lr=config.learning_rate,
        lr_end=None if config.run.control is Control.LR0 else learner.lr_end,
        lr_decay_steps=config.run.steps - 1,
        lr_warmup_steps=learner.lr_warmup_steps,
        betas=learner.betas,
        eps=learner.adam_eps,
        weight_decay=learner.weight_decay,
        clip_grad=learner.clip_grad,
        eps_low=learner.eps_low,
        eps_high=learner.eps_high,
        dual_clip=learner.dual_clip,
        tis_cap=learner.tis_cap,
        advantage=learner.advantage,
        shuffle_rewards=config.run.control is Control.SHUFFLED,
        temperature=config.agent.temperature,
        eta=config.staleness.eta,
        stale_policy=config.staleness.policy,
        micro_batch_tokens=learner.micro_batch_tokens,
        seed=config.run.seed,
        threads=learner.threads,
    )


def learner_environment(config: RunConfig) -> dict[str, str]:
    """Of each rank's process.  One that is to use the CPU sees no GPU, even where there is one."""
    threads = {"OMP_NUM_THREADS": str(config.learner.threads)}
    return threads if config.learner.device == "cuda" else threads | {"CUDA_VISIBLE_DEVICES": ""}

"""The spec of an engine, and whether its model has room for an episode."""

from __future__ import annotations

from pathlib import Path

from actors.engines.server.process import RESERVED_TOKENS
from actors.engines.settings import EngineSpec
from launch.config import RunConfig
from launch.hosts.cluster_nodes import ClusterNode
from launch.hosts.placement import actor_run_dir
from launch.run_records.run_directory import RunDirectory
from protocol.errors import UserError


def engine_spec(
    config: RunConfig, directory: RunDirectory, model_path: Path, name: str, node: ClusterNode
) -> EngineSpec:
    """Return the spec of an engine on ``node``."""
    return EngineSpec(
        settings=config.engine,
        name=name,
        run_dir=actor_run_dir(config, directory, node),
        model_path=str(model_path),
        context_length=config.agent.context_tokens,
        seed=config.run.seed,
        start_number=directory.start_number,
        node=node.name,
        offloads_memory=config.colocated,
        lora=config.lora if config.publish_adapters else None,
    )


def require_positions(context_tokens: int, positions: int) -> None:
    """Raise UserError if an episode may be longer than SGLang serves with a model of ``positions`` tokens."""
    if (most := positions - RESERVED_TOKENS) < context_tokens:
        raise UserError(
            f"agent.context_tokens = {context_tokens} and the model has {positions} positions, of which "
            f"SGLang keeps {RESERVED_TOKENS} for itself: --set agent.context_tokens={most} or less"
        )

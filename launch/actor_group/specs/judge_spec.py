"""The judge of a run: the spec of the engines that it serves itself, and whether a judge can be asked."""

from __future__ import annotations

import urllib.error
import urllib.request
from http.client import HTTPException
from pathlib import Path

import orjson

from actors.engines.server.process import RESERVED_TOKENS
from actors.engines.settings import EngineSpec, WeightTransferMode
from actors.rewards.settings import JudgeSettings
from actors.tokens.chat_format import load_chat_format
from launch.config import RunConfig
from launch.hosts.cluster_nodes import ClusterNode
from launch.hosts.placement import actor_run_dir
from launch.run_records.run_directory import RunDirectory
from protocol.errors import UserError
from protocol.weights import NO_VERSION, WeightManifest, WeightVersion

_ANSWER_S = 10.0


def judge_engine_spec(
    config: RunConfig, directory: RunDirectory, folder: Path, name: str, node: ClusterNode
) -> EngineSpec:
    """Return the spec of an engine on ``node`` that serves the judge in ``folder``, with the settings of the policy's
    engines but for those of weight updates and sampling seeds."""
    judge = config.judge
    unused = {
        "deterministic": False,  # else all votes on a turn are the same
        "weight_transfer": WeightTransferMode.AUTO,
        "load_weights_from": "disk",
    }
    return EngineSpec(
        settings=config.engine.model_copy(update={"count": judge.engines, "tp": judge.tp, **unused}),
        name=name,
        run_dir=actor_run_dir(config, directory, node),
        model_path=str(folder),
        context_length=judge_context_tokens(config, folder),
        seed=config.run.seed,
        start_number=directory.start_number,
        node=node.name,
    )


def judge_weights(folder: Path) -> WeightManifest:
    """Return the only weights that a judge's engine ever serves."""
    return WeightManifest(WeightVersion(0), 0, NO_VERSION, str(folder), "", 0, 0)


def judge_context_tokens(config: RunConfig, folder: Path) -> int:
    """Return the most tokens of a question and its reply: the model's positions, as far as a server's KV cache has room
    for them.  Raises UserError for a folder without a model's configuration."""
    try:
        model = orjson.loads((folder / "config.json").read_bytes())
        positions = int(model.get("text_config", model)["max_position_embeddings"])
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise UserError(
            f"judge.model = '{folder}' has no config.json with max_position_embeddings ({error}): point it at a folder "
            "saved with save_pretrained() by both the model and its tokenizer, or set judge.url to the judge's server"
        ) from error
    return min(positions - RESERVED_TOKENS, config.engine.max_total_tokens)


def check_judge_model(config: RunConfig) -> None:
    """Raise UserError unless the folder of the judge that the run serves, if there is one, can be served and asked."""
    folder = config.judge.own_model
    if folder is None:
        return
    context = judge_context_tokens(config, folder)
    if not any(folder.glob("*.safetensors")):
        raise UserError(f"judge.model = '{folder}' has no *.safetensors, the weights that its engines load")
    if context <= config.judge.max_new_tokens:
        raise UserError(
            f"judge.max_new_tokens = {config.judge.max_new_tokens} leaves no room for a question: the judge's model "
            f"and engine.max_total_tokens allow {context} tokens for both: lower it (--set judge.max_new_tokens=N)"
        )
    load_chat_format(str(folder), {})


def why_judge_is_silent(judge: JudgeSettings) -> str:
    """Return why the server of a judge at a URL cannot be asked; empty if it can, or there is none.  Blocking."""
    if not judge.enabled or judge.own_model is not None:
        return ""
    key = judge.make_spec().key
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    request = urllib.request.Request(f"{judge.url}/models", headers=headers)  # noqa: S310  http or https: JudgeSettings
    try:
        with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request, timeout=_ANSWER_S):
            return ""
    except urllib.error.HTTPError as error:
        return "refuses the key" if error.code in {401, 403} else ""  # not every server lists its models
    except (OSError, HTTPException) as error:
        return f"does not answer ({error})"

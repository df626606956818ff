"""What can be known to be wrong before anything starts: each check takes moments, and raises a UserError that says what
is wrong, why it matters, and what to do.  Nothing is left behind by a run that is refused here."""

from __future__ import annotations

import importlib.util
import os
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path

from actors.agents.chat import chat_format
from actors.agents.choice import agent_of
from actors.engines.server import OWN_TOKENS
from launch.config import RunConfig
from launch.config.policy import TrainerSection
from launch.demo.model import CONTEXT_TOKENS
from launch.ports import check_port
from launch.prepare import check_model
from launch.rewards import reward_settings
from launch.sandboxes import check_provider
from launch.sft.examples import check_sources
from launch.task_data import usable_tasks
from learner.qwen import read_config
from protocol.errors import UserError
from sandbox.address import EngineAddress
from sandbox.host import HostSettings, current_host
from sandbox.provision import engine_answers, has_image
from sandbox.tasks.generated import trained_families


def preflight(config: RunConfig) -> None:
    """Raise UserError for the first thing that would stop the run described by ``config``."""
    check_port(config.monitor.port if config.monitor.enabled else 0, "monitor.port")
    check_port(config.buffer.port, "buffer.port")
    settings = config.agent.settings
    agent = agent_of(settings)
    if config.model.path is not None:
        check_model(config.model.path)
        check_layout(config.model.path, config.learner)
        chat_format(str(config.model.path), agent.offered, thinking=settings.thinking.argument)
    check_context(config)
    reward_settings(config)
    if config.warm_start.enabled:
        check_sources(config.warm_start.data)
    if config.data.generated:
        trained_families(config.data.held_out_family)
    else:
        usable_tasks(config)
    if not config.cluster.address:
        devices = {"learner.device": config.learner.device, "engine.device": config.engine.device}
        check_devices(devices, ", or join a cluster that has one (--address HOST:PORT)")
    check_memory_saver(config)
    check_disk(config.run.dir, config.run.disk_reserve_mb)
    if not config.sandbox.own:
        check_provider(config, agent, os.environ)
    elif not config.cluster.address:
        check_sandboxes(config.sandbox.image, harness=bool(config.agent.harness))


def check_sandboxes(image: str, *, harness: bool) -> None:
    """This machine has what workers' own pools need.  Of a cluster every node is asked (:mod:`launch.machines`)."""
    check_docker(HostSettings.from_environment())
    check_image(image)
    if harness:
        check_harness(current_host().docker_url)


def check_layout(model: Path, learner: TrainerSection) -> None:
    """The learner's ranks can share the heads, inner rows and layers of ``model``."""
    shape, tp, pp = read_config(model), learner.tp, learner.pp
    heads, inner, layers = shape.num_key_value_heads, shape.intermediate_size, shape.num_hidden_layers
    if heads % tp or inner % tp:
        fitting = [size for size in range(1, heads + 1) if heads % size == inner % size == 0]
        raise UserError(
            f"learner.tp = {tp} does not divide the {heads} key-value heads and the {inner} inner rows of {model}: "
            f"set it to one of {', '.join(map(str, fitting))}"
        )
    if layers % pp:
        raise UserError(
            f"learner.pp = {pp} does not divide the {layers} layers of {model}: set it to one of "
            f"{', '.join(str(size) for size in range(1, layers + 1) if layers % size == 0)}"
        )


_MEMORY_SAVER = "torch_memory_saver"
_DEVICES = Path("/dev")
_GPUS = ("nvidia[0-9]*", "kfd", "dxg")
"""Device files of a GPU that torch calls ``cuda``: NVIDIA's, AMD's, WSL's."""


def check_devices(named: Mapping[str, str], otherwise: str = "") -> None:
    """This machine has a GPU, if any of these keys puts something on one.  Device files tell, without loading torch."""
    wanted = [key for key, device in named.items() if device == "cuda"]
    if wanted and not any(found for kind in _GPUS for found in _DEVICES.glob(kind)):
        raise UserError(
            f"{' and '.join(f'{key} = cuda' for key in wanted)}, and this machine has no GPU (no {_DEVICES}/nvidia*): "
            f"{' '.join(f'--set {key}=cpu' for key in wanted)}{otherwise}"
        )


def check_memory_saver(config: RunConfig) -> None:
    """SGLang can give a GPU's memory away, where ``config`` has it take turns."""
    if config.shared and config.engine.device == "cuda" and importlib.util.find_spec(_MEMORY_SAVER) is None:
        raise UserError(
            "cluster.placement = shared on a GPU needs SGLang's memory saver, which is not installed: "
            f"{sys.executable} -m pip install {_MEMORY_SAVER.replace('_', '-')}, or --set cluster.placement=separate"
        )


def check_disk(folder: Path, reserve_mb: int) -> None:
    """``folder``, or where it will be made, has room."""
    there = next(path for path in (folder.absolute(), *folder.absolute().parents) if path.exists())
    free = shutil.disk_usage(there).free
    if free < reserve_mb << 20:
        raise UserError(
            f"{there} has {free >> 20} MB free and the run keeps {reserve_mb} MB in reserve (run.disk_reserve_mb): "
            "free some space, or put runs elsewhere with --set run.dir=FOLDER"
        )


def check_context(config: RunConfig) -> None:
    """Raise UserError for an episode that may become longer than SGLang serves with the model."""
    path = config.model.path
    positions = read_config(path).max_position_embeddings if path is not None else CONTEXT_TOKENS
    if (most := positions - OWN_TOKENS) < config.agent.context_tokens:
        raise UserError(
            f"agent.context_tokens = {config.agent.context_tokens} and the model has {positions} positions, of which "
            f"SGLang keeps {OWN_TOKENS} for itself: --set agent.context_tokens={most} or less"
        )


def check_image(name: str) -> None:
    """``sandbox.image``, if it names one, is in the engine: no registry is asked in a run."""
    host = current_host()
    if name and not has_image(host.docker_url, name):
        raise UserError(
            f"sandbox.image = '{name}' is not in the Docker engine at {host.docker_url}, and a run asks no registry: "
            f"run `python -m sandbox.images pull {name}`, or leave the key out for the base image"
        )


def check_harness(docker_url: str) -> None:
    """A harness can be given a door to the policy: this process may enter the namespaces of its sandbox."""
    if os.geteuid() != 0 or not EngineAddress.parse(docker_url).socket:
        raise UserError(
            "agent.harness: a harness reaches the policy by a door that is opened in its sandbox, and only root on the "
            f"Docker engine's host may open one (the engine is at {docker_url}): run there as root, or leave the key "
            "out for the built-in agent"
        )


def check_docker(settings: HostSettings) -> None:
    """The engine that this machine was set up with answers and has the base image."""
    asked = settings.docker_url
    if asked and not engine_answers(asked):
        raise UserError(
            f"no Docker engine answers at DOCKER_HOST={asked}, and agents work in containers: start it, or unset "
            "DOCKER_HOST and run `make setup`"
        )
    host = current_host(settings)
    if asked and asked != host.docker_url:
        raise UserError(
            f"DOCKER_HOST={asked} is not the engine that this machine was set up with, {host.docker_url}: run "
            "`make setup` to use it, or unset DOCKER_HOST"
        )
    if not engine_answers(host.docker_url):
        raise UserError(
            f"no Docker engine answers at {host.docker_url}, and agents work in containers: run `make setup`, which "
            "starts one"
        )
    if not has_image(host.docker_url, host.base_image) or not host.kit.exists():
        raise UserError(
            f"the base image {host.base_image} or the kit {host.kit} is gone, and sandboxes are made of them: run "
            "`make setup`"
        )

"""What the Docker engine holds before and after a run: the full lists, not a label query."""

from __future__ import annotations

from functools import partial

from sandbox.docker.engine import DockerEngine
from sandbox.docker.inventory import DockerInventory
from sandbox.docker.labels import RUN_LABEL
from sandbox.docker.leaks import inventory_of_others, inventory_without_labels, wait_for_leaks
from sandbox.host_record import docker_url, is_set_up

_PATIENCE_S = 60.0


async def take_inventory(run_id: str) -> DockerInventory | None:
    """Every container, network, volume and copy of a container that the engine holds, but for what an earlier attempt
    of the run has left: if that stays, it has leaked.  None where this machine was set up with no engine."""
    if not is_set_up():
        return None
    async with DockerEngine(docker_url()) as engine:
        return await inventory_without_labels(engine, {RUN_LABEL: run_id})


async def count_leaks(before: DockerInventory | None, run_id: str) -> int:
    """How many are new and stay, once the engine has had time to finish removals that are under way; what carries
    another run's label is that one's, which may go on."""
    if before is None:
        return 0
    async with DockerEngine(docker_url()) as engine:
        apart = partial(inventory_of_others, engine, RUN_LABEL, run_id)
        return len(await wait_for_leaks(engine, before, patience_s=_PATIENCE_S, list_others=apart))

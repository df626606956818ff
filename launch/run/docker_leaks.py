"""Finds what a run leaves on the Docker engine, by comparing full lists instead of labels."""

from __future__ import annotations

from functools import partial

from sandbox.docker.engine import DockerEngine
from sandbox.docker.inventory import DockerInventory
from sandbox.docker.labels import RUN_LABEL
from sandbox.docker.leaks import inventory_of_others, inventory_without_labels, wait_for_leaks
from sandbox.host_record import docker_url, is_set_up

_REMOVAL_S = 60.0


async def take_inventory(run_id: str) -> DockerInventory | None:
    """List every container, network, volume and snapshot of the engine except those of earlier starts of the run,
    which count as leaked if they stay.  None if this machine has no engine."""
    if not is_set_up():
        return None
    async with DockerEngine(docker_url()) as engine:
        return await inventory_without_labels(engine, {RUN_LABEL: run_id})


async def count_leaks(before: DockerInventory | None, run_id: str) -> int:
    """Return how many objects are new and stay after the engine had time to finish removals; those labelled as another
    run's do not count."""
    if before is None:
        return 0
    async with DockerEngine(docker_url()) as engine:
        apart = partial(inventory_of_others, engine, RUN_LABEL, run_id)
        return len(await wait_for_leaks(engine, before, patience_s=_REMOVAL_S, list_others=apart))

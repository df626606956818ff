"""Finds what a run leaves on the Docker engine: what carries the run's label is the run's.

What is new beside it, and carries the label of no run, is somebody else's (or, at worst, a resource of ours without a
label): it is named, and does not count.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial

from sandbox.docker.engine import DockerEngine
from sandbox.docker.inventory import DockerInventory
from sandbox.docker.labels import RUN_LABEL
from sandbox.docker.leaks import inventory_where, wait_until_removed
from sandbox.host_record import docker_url, is_set_up

_REMOVAL_S = 60.0
NOTHING = DockerInventory(frozenset(), frozenset(), frozenset())


@dataclass(frozen=True, slots=True)
class RunLeaks:
    """The resources that are new on the engine at the end of a run."""

    docker_url: str = ""
    of_run: DockerInventory = NOTHING
    of_others: DockerInventory = NOTHING

    @property
    def removal(self) -> str:
        """Commands that remove what the run left."""
        return " && ".join(
            f"docker --host {self.docker_url} {command} {' '.join(sorted(ids))}"
            for command, ids in (
                ("rm --force --volumes", self.of_run.containers),
                ("volume rm", self.of_run.volumes),
                ("network rm", self.of_run.networks),
                ("image rm --force", self.of_run.images),
            )
            if ids
        )


async def take_inventory() -> DockerInventory | None:
    """List every container, network, volume and snapshot of the engine.  None if this machine has no engine."""
    if not is_set_up():
        return None
    async with DockerEngine(docker_url()) as engine:
        return await engine.inventory()


async def find_leaks(before: DockerInventory | None, run_id: str, *, patience_s: float = _REMOVAL_S) -> RunLeaks:
    """Return what stays for ``patience_s``, within which removals may finish; what earlier starts of the run left
    counts."""
    if before is None:
        return RunLeaks()

    def is_of_run(labels: Mapping[str, str]) -> bool:
        return labels.get(RUN_LABEL) == run_id

    async with DockerEngine(docker_url()) as engine:
        of_run = await wait_until_removed(partial(inventory_where, engine, is_of_run), patience_s)
        new = (await engine.inventory()).new_since(before)
        of_runs = await inventory_where(engine, lambda labels: RUN_LABEL in labels)
        return RunLeaks(engine.url, of_run, new.new_since(of_runs))

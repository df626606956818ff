"""Checks that what the Docker engine executes in a container runs there, by a trial.

Only on engines that longshore did not start, and not before each run: the trial takes a container.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from launch.doctor.check_runner import make_host_check
from launch.doctor.finding import CheckName, Finding, failed
from launch.doctor.requirements import HostRequirements
from protocol.errors import UserError
from sandbox.docker import owner
from sandbox.docker.container_spec import ContainerSpec
from sandbox.docker.daemon import engine_answers, has_image
from sandbox.docker.engine import DockerEngine
from sandbox.docker.execution import leaves_container
from sandbox.docker.labels import OWNER_LABEL
from sandbox.docker.retry import DockerEngineError
from sandbox.host_record import HostSettings, SandboxHost, current_host

_DEADLINE_S = 60.0
_WAIT = ("/.sbx/busybox", "sleep", "60")


@dataclass(frozen=True, slots=True)
class ExecFacts:
    url: str = ""
    leaves_container: bool | None = None
    """Whether a program that the engine executes in a container runs outside of it; None if it was not tried."""


def read_exec_facts(requirements: HostRequirements) -> ExecFacts:
    """Try it; an engine that cannot is the subject of other checks."""
    try:
        host = current_host(HostSettings.from_environment())
        if not requirements.docker or host.engine_owner or not engine_answers(host.docker_url):
            return ExecFacts()
        if not has_image(host.docker_url, host.base_image):
            return ExecFacts()
        return ExecFacts(host.docker_url, asyncio.run(_try(host)))
    except (DockerEngineError, OSError, UserError):
        return ExecFacts()


async def _try(host: SandboxHost) -> bool:
    labels = {OWNER_LABEL: owner.owner_of_this_process()}
    async with DockerEngine(host.docker_url) as engine:
        return await leaves_container(engine, ContainerSpec(host.base_image, host.toolchain, labels, _WAIT))


def check_exec(facts: ExecFacts, requirements: HostRequirements) -> Sequence[Finding]:
    """Return a failure if such a program leaves its container."""
    del requirements
    if not facts.leaves_container:
        return []
    return [
        failed(
            CheckName.DOCKER,
            f"what the engine at {facts.url} executes in a container (`docker exec`) runs in the root of its machine",
            "start its dockerd by the machine's init, or in its folder with `unshare -m` and `pivot_root`, not chroot",
        )
    ]


DOCKER_EXEC_CHECK = make_host_check(
    (CheckName.DOCKER,),
    read_exec_facts,
    check_exec,
    deadline_s=_DEADLINE_S,
    timeout_fix="restart the Docker engine, and see that it starts containers (`docker run --rm IMAGE true`)",
    quick=False,
)

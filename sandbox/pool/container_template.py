"""Creates the specifications of a pool's containers, and the labels by which they and their networks are found."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Mapping

from sandbox.agent_programs import AgentPrograms
from sandbox.capabilities import BASE_CAPABILITIES, PID_1_CAPABILITIES
from sandbox.docker import owner
from sandbox.docker.container_spec import HOSTNAME, ContainerLimits, ContainerSpec, ImageConfig
from sandbox.docker.labels import EXPIRES_LABEL, OWNER_LABEL, POOL_LABEL, POOL_PROCESS_LABEL, RUN_LABEL
from sandbox.egress_proxy.settings import is_proxy_variable
from sandbox.host_record import SandboxHost
from sandbox.networking.networks import SHARED_NETWORK
from sandbox.networking.service_requests import TaskServiceSettings
from sandbox.networking.task_services import ContainerNetwork
from sandbox.pool.disk_bound import DiskBound
from sandbox.pool.settings import PoolSettings
from sandbox.pool.warm_sandboxes import ContainerKind
from sandbox.session.users import names_root
from sandbox.tasks.task import Task
from sandbox.tasks.task_grading import GradingLevel

NO_SERVICES = ContainerNetwork()
NO_CONFIG = ImageConfig()


class ContainerTemplate:
    """The template of one pool in one process."""

    def __init__(self, settings: PoolSettings, host: SandboxHost, now: Callable[[], float] = time.time) -> None:
        self._settings, self._host, self._now = settings, host, now
        self._owner = settings.owner or owner.owner_of_this_process()
        self.process_id = uuid.uuid4().hex
        """Label value on everything that this process creates for the pool."""
        self.default_image = settings.containers.image or host.base_image
        self.disk_bound = DiskBound.FILE_SIZE
        self.live_restore = False
        """True if containers outlive their daemon, which then does not remove ended ones."""

    def container_kind(
        self,
        task: Task,
        image: str,
        image_config: ImageConfig = NO_CONFIG,
        network: ContainerNetwork = NO_SERVICES,
        programs: AgentPrograms | None = None,
    ) -> ContainerKind:
        """Return the kind of container that a task needs, with an agent's programs or the pool's own."""
        steps = task.in_steps
        names = {task.container_user, *(name for each in (task, *steps) for name in (each.agent_user, each.tests_user))}
        users = {name or image_config.user for name in names}
        mounts = task.read_only or any(step.grading is GradingLevel.LIVE for step in steps)
        programs = programs or self._settings.agent_programs or AgentPrograms("", 0, 0)
        of_pid_1 = PID_1_CAPABILITIES if mounts or not all(map(names_root, users)) else ()
        proxy = {name: value for name, value in network.env.items() if is_proxy_variable(name)}
        return ContainerKind(
            image,
            task.workdir or image_config.workdir or "/",
            ContainerLimits(
                (task.memory_mb + programs.memory_mb) << 20,
                task.pids + programs.pids,
                task.cpus,
                shm_bytes=task.shm_mb << 20,
                disk_bytes=task.storage_mb << 20,
            ),
            tuple(sorted({**network.env, **task.env, **task.agent_env, **proxy}.items())),
            (*BASE_CAPABILITIES, *of_pid_1),
            network.network,
            task.tmpfs,
            image_config,
            task.read_only,
            network.volumes,
            programs.folder,
            task.hostname or HOSTNAME,
            task.ulimits,
            network.aliases,
        )

    def container_spec(self, kind: ContainerKind, lifetime_s: float) -> ContainerSpec:
        """Return the specification of a container of this kind that lives for at most ``lifetime_s`` seconds."""
        return ContainerSpec(
            image=kind.image,
            toolchain=self._host.toolchain,
            labels=self.labels(lifetime_s),
            env=dict((*kind.env, *kind.login.agent)),
            limits=kind.limits,
            disk_quota=self.disk_bound.enforced_by_daemon,
            disk_loop=self.disk_bound is DiskBound.LOOP,
            auto_remove=not self.live_restore,
            network=kind.network,
            resolves_public_names=kind.network == SHARED_NETWORK,
            capabilities=kind.capabilities,
            tmpfs=kind.tmpfs,
            image_config=kind.image_config,
            read_only=kind.read_only,
            volumes=kind.volumes,
            hostname=kind.hostname,
            ulimits=kind.ulimits,
            aliases=kind.aliases,
            agent_programs=self._host.home / kind.agent_programs if kind.agent_programs else None,
        )

    def labels(self, lifetime_s: float) -> Mapping[str, str]:
        """Return the labels of a container that lives for at most ``lifetime_s`` seconds."""
        return {
            RUN_LABEL: self._settings.run_id,
            POOL_LABEL: self._settings.name,
            OWNER_LABEL: self._owner,
            POOL_PROCESS_LABEL: self.process_id,
            EXPIRES_LABEL: str(int(self._now() + lifetime_s)),
        }

    def service_settings(self, lifetime_s: float) -> TaskServiceSettings:
        """Return the settings of task services that live for at most ``lifetime_s`` seconds."""
        return TaskServiceSettings(
            self._host.toolchain,
            self.labels(lifetime_s),
            lifetime_s,
            auto_remove=not self.live_restore,
            disk_quota=self.disk_bound.enforced_by_daemon,
        )

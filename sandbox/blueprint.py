"""How a pool's containers are made, and the labels by which they and their networks are known to be its own."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Mapping

from sandbox import owner
from sandbox.disk import DiskBound
from sandbox.engine import ContainerLimits, ContainerSpec
from sandbox.host import Host
from sandbox.network import SHARED
from sandbox.pool_settings import PoolSettings
from sandbox.services import ServiceSettings
from sandbox.surroundings import Around
from sandbox.sweep import LABEL
from sandbox.tasks.task import CAPABILITIES, Task
from sandbox.warm import Kind

LEASE_LABEL = f"{LABEL}.lease"
_ALONE = Around()


class Blueprint:
    """Of one pool in one process."""

    def __init__(self, settings: PoolSettings, host: Host, now: Callable[[], float] = time.time) -> None:
        self._settings, self._host, self._now = settings, host, now
        self._owner = settings.owner or owner.this_process()
        self.lease = uuid.uuid4().hex
        """On everything that this process makes for the pool."""
        self.default_image = settings.image or host.base_image
        self.disk_bound = DiskBound.FILE_SIZE
        self.live_restore = False
        """Containers outlive their daemon, which therefore does not remove what has ended."""

    def kind(self, task: Task, image: str, around: Around = _ALONE) -> Kind:
        return Kind(
            image,
            task.workdir,
            ContainerLimits(task.memory_mb << 20, task.pids, task.cpus, disk_bytes=task.storage_mb << 20),
            tuple(sorted({**around.env, **task.env}.items())),
            (*CAPABILITIES, *sorted(set(task.capabilities))),
            around.network,
        )

    def spec(self, kind: Kind, max_s: float) -> ContainerSpec:
        """For a container that lives for ``max_s`` at most."""
        return ContainerSpec(
            image=kind.image,
            kit=self._host.kit,
            labels=self.labels(max_s),
            env=dict(kind.env),
            limits=kind.limits,
            disk_quota=self.disk_bound.by_daemon,
            disk_loop=self.disk_bound is DiskBound.LOOP,
            auto_remove=not self.live_restore,
            network=kind.network,
            resolves=kind.network == SHARED,
            capabilities=kind.capabilities,
        )

    def labels(self, max_s: float) -> Mapping[str, str]:
        return {
            f"{LABEL}.run": self._settings.run_id,
            f"{LABEL}.pool": self._settings.pool,
            f"{LABEL}.owner": self._owner,
            LEASE_LABEL: self.lease,
            f"{LABEL}.expires": str(int(self._now() + max_s)),
        }

    def services(self, max_s: float) -> ServiceSettings:
        return ServiceSettings(
            self._host.kit,
            self.labels(max_s),
            max_s,
            auto_remove=not self.live_restore,
            disk_quota=self.disk_bound.by_daemon,
        )

"""A pool server's state of each lease: its sandbox, its operations and its journal."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

from sandbox.agent_programs import AgentPrograms
from sandbox.pool.leases import SlotLease
from sandbox.pool.settings import PoolStatistics
from sandbox.providers.pool_sandbox import PoolSandbox
from sandbox.server.agent_port import AgentPort
from sandbox.server.journal import LeaseJournal
from sandbox.server.operations import IdempotentOperations
from sandbox.tasks.task import Task


class HostSandbox(PoolSandbox, Protocol):
    """A sandbox of this machine's pool."""

    @property
    def container(self) -> str: ...


class HostProvider(Protocol):
    """This machine's sandboxes; see :class:`sandbox.providers.interface.LocalProvider`."""

    async def open(
        self, task: Task, deadline_s: float | None = None, programs: AgentPrograms | None = None
    ) -> HostSandbox: ...

    async def adopt(self, container: str, task: Task, step: int = 0) -> HostSandbox: ...

    async def containers(self) -> frozenset[str]: ...

    async def remove_orphans(self) -> int: ...

    async def images(self) -> tuple[str, ...]: ...

    def agent_programs(self) -> tuple[str, ...]:
        """Return the folders of agents' programs that sandboxes can have."""
        ...

    @property
    def can_listen(self) -> bool:
        """True if the server can listen in its sandboxes."""
        ...

    def wait_s(self) -> float: ...

    def statistics(self) -> PoolStatistics: ...


@dataclass(slots=True)
class LeaseState:
    """The sandbox and the operations of a lease."""

    lease: SlotLease
    journal: LeaseJournal
    operations: IdempotentOperations
    sandbox: HostSandbox | None = None
    task: Task | None = None
    lost: Exception | None = None
    """The error if there is no longer a sandbox."""
    closed: bool = False
    evaluate_s: float | None = None
    """Maximum seconds of an evaluation, if the reset sets one."""
    step: int | None = None
    """Number of the step that is played, if the task has steps."""
    interrupted: bool = False
    """True if the client wants the agent's program to end."""
    agent_port: AgentPort = field(default_factory=AgentPort)

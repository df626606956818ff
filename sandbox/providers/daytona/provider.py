"""Daytona as a provider of sandboxes: ``async with daytona_provider({"image": "debian:12"}) as provider``.

Options: ``image`` of tasks that name none; ``api_url`` and ``target`` if they are not the account's defaults;
``idle_minutes`` after which a sandbox that was not renewed is deleted; ``disk_gb``, in GiB. The SDK reads the key from
the variable DAYTONA_API_KEY.
"""

from __future__ import annotations

import asyncio
import math
import os
import tempfile
from collections.abc import AsyncGenerator, Mapping
from contextlib import ExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

from protocol.cli.suggestions import did_you_mean
from protocol.errors import InfraError, UserError
from protocol.processes.cancellation import call_with_undo
from sandbox.agent_programs import AgentPrograms
from sandbox.egress_proxy.rules import find_refused_hosts
from sandbox.errors import BuildError, SandboxLost, SandboxStartError, TaskFault
from sandbox.host_record import HostSettings
from sandbox.providers.daytona.files import write_files
from sandbox.providers.daytona.handle import LONGSHORE_FOLDER, DaytonaHandle
from sandbox.providers.daytona.programs import PackedPrograms, install_programs, pack_programs
from sandbox.providers.daytona.sandbox import DaytonaSandbox, delete_quietly
from sandbox.providers.daytona.sdk import DaytonaClient, DaytonaSdk, load_sdk
from sandbox.providers.daytona.shell import DaytonaShell
from sandbox.providers.plugins import ProviderOptions
from sandbox.session.shell import CommandResult
from sandbox.session.task_setup import set_up_task
from sandbox.session.users import names_root
from sandbox.tasks.allowed_hosts import ports_of_ranges
from sandbox.tasks.task import Task
from sandbox.tasks.task_containers import ImageBuild
from sandbox.tasks.task_grading import GradingLevel
from sandbox.tasks.task_network import NetworkMode

_CREATE_S, _SETUP_S = 600.0, 300.0
_LONGEST_S = 7200.0
_NO_BASH = 95
_RENEWALS = 3
"""Number of renewals within the time that a sandbox lives without one."""


@dataclass(frozen=True, slots=True)
class DaytonaOptions:
    """Keys of ``sandbox.options`` for Daytona."""

    image: str = ""
    api_url: str = ""
    target: str = ""
    idle_minutes: int = 15
    disk_gb: int = 3

    @classmethod
    def parse(cls, options: ProviderOptions) -> DaytonaOptions:
        """Check the options. Raises UserError for an unknown key or a wrong value."""
        known = {"image": str, "api_url": str, "target": str, "idle_minutes": int, "disk_gb": int}
        for name, value in options.items():
            if name not in known:
                raise UserError(
                    f"sandbox.options.{name} is not an option of Daytona: there are {', '.join(known)}"
                    f"{did_you_mean(name, [*known])}"
                )
            if type(value) is not known[name] or (known[name] is int and int(value) < 1):
                raise UserError(f"sandbox.options.{name} = {value!r}: write a {known[name].__name__}, 1 or more")
        given: Mapping[str, Any] = options
        return cls(**given)


class DaytonaProvider:
    """Creates sandboxes at Daytona; :func:`daytona_provider` opens it."""

    def __init__(
        self,
        client: DaytonaClient,
        sdk: DaytonaSdk,
        options: DaytonaOptions,
        home: Path,
        packed: PackedPrograms | None = None,
    ) -> None:
        """``home`` is longshore's cache folder on this machine; each sandbox has the programs in ``packed``."""
        self._client, self._sdk, self._options, self._home, self._packed = client, sdk, options, home, packed
        self._open: set[DaytonaSandbox] = set()

    async def open(self, task: Task, deadline_s: float | None = None) -> DaytonaSandbox:
        """Open a sandbox; see :class:`sandbox.providers.interface.SandboxProvider`."""
        self._check(task)
        task = replace(task, workdir=task.workdir or "/")
        machine = await call_with_undo(lambda: self._created(task, deadline_s or _LONGEST_S), delete_quietly)
        try:
            await _ready(machine, task)
            if self._packed is not None:
                await install_programs(machine, self._packed)
            spared = (await machine.call("list-processes")).words
            await _set_up(machine, task)
        except BaseException as error:
            await asyncio.shield(delete_quietly(machine))
            if isinstance(error, SandboxLost | OSError):
                raise SandboxStartError(f"no sandbox for task {task.id}: {error}") from error
            raise
        sandbox = DaytonaSandbox(machine, task, spared, self._open.discard, self._home)
        self._open.add(sandbox)
        return sandbox

    def _check(self, task: Task) -> None:
        """Raise UserError for what a task needs but Daytona does not have."""
        needs = {
            "services": bool(task.services),
            "steps": bool(task.steps),
            "collect commands": bool(task.collect),
            "limits of each process": bool(task.ulimits),
            "folders in memory": bool(task.tmpfs),
            "read-only folders": bool(task.read_only),
            "a host name": bool(task.hostname),
            "an entrypoint or a command": task.entrypoint is not None or bool(task.command),
            f"grading at '{task.grading}'": task.grading is not GradingLevel.SAME,
            "a user other than root": not all(map(names_root, (task.agent_user, task.tests_user, task.container_user))),
            "allowed hosts that are not public": any(find_refused_hosts(task.network, ())),
            "allowed ranges of addresses": bool(ports_of_ranges(task.network.allowed_hosts)),
            "build arguments or a target": task.build is not None and bool(task.build.args or task.build.target),
        }
        if missing := [what for what, needed in needs.items() if needed]:
            raise UserError(
                f"task {task.id} needs {' and '.join(missing)}, which a Daytona sandbox does not have: leave the task "
                "out (data.task_ids), or set sandbox.provider = 'docker' or 'pool'"
            )
        if task.build is None and not (task.image or self._options.image):
            raise UserError(
                f"task {task.id} names no image, and Daytona does not have longshore's base image: --set "
                "'sandbox.options={image=\"debian:12\"}'"
            )

    async def _created(self, task: Task, max_s: float) -> DaytonaHandle:
        options, sdk, network = self._options, self._sdk, task.network
        programs_mb = 0 if self._packed is None else self._packed.programs.memory_mb
        programs_gb = 0 if self._packed is None else math.ceil(self._packed.disk_bytes / (1 << 30))
        with ExitStack() as stack:
            params = sdk.CreateSandboxFromImageParams(
                image=self._image(task.build, stack) if task.build else task.image or options.image,
                os_user="root",
                env_vars={**task.env, **task.agent_env},
                labels={"longshore": "sandbox", "task": task.id},
                resources=sdk.Resources(
                    cpu=math.ceil(task.cpus),
                    memory=math.ceil((task.memory_mb + programs_mb) / 1024),
                    disk=max(options.disk_gb, math.ceil(task.storage_mb / 1024)) + programs_gb,
                ),
                auto_stop_interval=options.idle_minutes,
                ttl_minutes=math.ceil(max_s / 60),
                ephemeral=True,
                network_block_all=network.agent is NetworkMode.NONE,
                domain_allow_list=",".join(network.allowed_hosts) if network.agent is NetworkMode.PROXY else None,
            )
            try:
                box = await self._client.create(params, timeout=max(_CREATE_S, task.build_timeout_s))
            except sdk.DaytonaError as error:
                kind = BuildError if task.build else SandboxStartError
                raise kind(f"Daytona created no sandbox for task {task.id}: {error}") from error
        return DaytonaHandle(box, sdk)

    def _image(self, build: ImageBuild, stack: ExitStack) -> Any:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="ls-daytona-")))
        for name, data in build.files.items():
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
            path.chmod(0o755 if name in build.executable else 0o644)
            if (modified_s := build.modified_s.get(name)) is not None:
                os.utime(path, (modified_s, modified_s))
        return self._sdk.Image.from_dockerfile(folder / build.dockerfile)

    async def renew(self) -> None:
        """Renew all open sandboxes."""

        async def one(sandbox: DaytonaSandbox) -> None:
            with suppress(InfraError):  # the sandbox's next call raises it
                await sandbox.handle.renew()

        async with asyncio.TaskGroup() as group:
            for sandbox in tuple(self._open):
                group.create_task(one(sandbox))

    async def keep(self, every_s: float) -> None:
        """Renew all open sandboxes until cancelled."""
        while True:
            await asyncio.sleep(every_s)
            await self.renew()

    async def close(self) -> None:
        """Delete all open sandboxes."""
        async with asyncio.TaskGroup() as group:
            for sandbox in tuple(self._open):
                group.create_task(sandbox.close())


async def _ready(machine: DaytonaHandle, task: Task) -> None:
    """Prepare the sandbox. Raises TaskFault for an unsuitable image, SandboxLost."""
    if (done := await machine.call("ready", LONGSHORE_FOLDER, task.workdir)).code:
        why = "has no bash 5" if done.code == _NO_BASH else f"cannot be prepared: code {done.code}"
        raise TaskFault(f"the image of task {task.id} {why}, which a Daytona sandbox needs")


async def _set_up(machine: DaytonaHandle, task: Task) -> None:
    """Prepare the sandbox for its task.  Raises SandboxStartError, and TaskFault when the task is at fault."""
    await set_up_task(_NewMachine(machine, DaytonaShell(machine, task.workdir)), task, _SETUP_S)


class _NewMachine(NamedTuple):
    machine: DaytonaHandle
    shell: DaytonaShell

    async def write_files(self, contents: Mapping[str, bytes], *, mode: int = 0o644) -> None:
        await write_files(self.machine, contents, mode)

    async def run(self, command: str, timeout_s: float) -> CommandResult:
        return await self.shell.run(command, timeout_s)

    async def start_image(self, task: Task) -> None:
        """Do nothing: Daytona starts it."""

    async def become_agent(self) -> None:
        """Do nothing: the agent is root."""


@asynccontextmanager
async def daytona_provider(
    options: ProviderOptions,
    sdk: DaytonaSdk | None = None,
    *,
    programs: AgentPrograms | None = None,
    home: Path | None = None,
) -> AsyncGenerator[DaytonaProvider]:
    """Open the provider; leaving it deletes the open sandboxes.  Each sandbox has the ``programs`` of an agent, which
    are in ``home``, longshore's cache folder on this machine if it is None.

    Raises UserError where the SDK or the programs are not installed, or the SDK refuses its settings.
    """
    chosen = DaytonaOptions.parse(options)
    package = sdk or load_sdk()
    try:
        client = package.AsyncDaytona(
            package.DaytonaConfig(api_url=chosen.api_url or None, target=chosen.target or None)
        )
    except package.DaytonaError as error:
        raise UserError(f"Daytona cannot be used ({error}): export DAYTONA_API_KEY=…, from its dashboard") from error
    home = home or HostSettings.from_environment().home
    packed = None if programs is None else await asyncio.to_thread(pack_programs, home, programs)
    every_s = chosen.idle_minutes * 60 / _RENEWALS
    async with client:
        provider, tasks = DaytonaProvider(client, package, chosen, home, packed), asyncio.TaskGroup()
        await tasks.__aenter__()
        keeping = tasks.create_task(provider.keep(every_s))
        try:
            yield provider
        finally:  # raise the caller's own error as it is, not in a group
            keeping.cancel()
            try:
                await asyncio.shield(provider.close())
            finally:
                await tasks.__aexit__(None, None, None)

"""Reads the services of a compose file: the agent's, and those beside it.  Pure."""

from __future__ import annotations

import posixpath
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from sandbox.capabilities import BASE_CAPABILITIES, SERVICE_CAPABILITIES
from sandbox.process_limits import ProcessLimit
from sandbox.tasks.container_files.build_context import BuildPlan, read_build_context
from sandbox.tasks.container_files.compose_relations import ServiceRelations
from sandbox.tasks.container_files.compose_schema import ComposeAgentService, ComposeService, ComposeSideService
from sandbox.tasks.container_files.compose_sections import ComposeBuild, ComposeHealthcheck
from sandbox.tasks.container_files.compose_volumes import read_host_folders, read_shared_folders
from sandbox.tasks.container_files.compose_yaml import scalar_text
from sandbox.tasks.container_files.env_files import read_env_files
from sandbox.tasks.container_files.host_folders import HostFolder, build_from, copy_host_folders
from sandbox.tasks.file_tree import FileTree
from sandbox.tasks.problems import TaskProblems
from sandbox.tasks.task_containers import SharedFolder, TaskHealthcheck, TaskService
from sandbox.tasks.task_network import OFFLINE, NetworkMode, TaskNetwork

_WAITS = {"sleep infinity", "tail -f /dev/null", "bash", "sh", "/bin/bash", "/bin/sh", ""}
_GRADER = ("T_BENCH_", "TEST_DIR")
"""Prefixes of variables that the grader sets itself."""


@dataclass(frozen=True, slots=True)
class ComposeFacts:
    """The parts of a task that a compose file defines."""

    image: str = ""
    build: BuildPlan | None = None
    env: dict[str, str] = field(default_factory=dict[str, str])
    workdir: str = ""
    memory_mb: int | None = None
    cpus: float | None = None
    pids: int | None = None
    shm_mb: int | None = None
    tmpfs: tuple[str, ...] = ()
    user: str = ""
    hostname: str = ""
    folders: tuple[HostFolder, ...] = ()
    """The task's own files that the file mounts."""
    volumes: tuple[SharedFolder, ...] = ()
    entrypoint: tuple[str, ...] | None = None
    command: tuple[str, ...] = ()
    """Of the agent's container, unless it only waits."""
    healthcheck: TaskHealthcheck | None = None
    offline: bool = False
    """The agent's service has no network."""
    builds_offline: bool = False
    ulimits: tuple[ProcessLimit, ...] = ()
    aliases: tuple[str, ...] = ()
    """Names by which services reach the agent's container."""
    services: tuple[TaskService, ...] = ()

    @property
    def read_only(self) -> tuple[str, ...]:
        """Return the folders that the agent cannot change, without those that are shared."""
        shared = {each.target for each in self.volumes}
        return tuple(each.target for each in self.folders if each.read_only and each.target not in shared)

    def network(self, otherwise: TaskNetwork) -> TaskNetwork:
        """Return the task's network: what the file says, and ``otherwise`` where it says nothing."""
        network = OFFLINE if self.offline else otherwise
        return replace(network, build=NetworkMode.NONE) if self.builds_offline else network


def read_agent_service(
    given: ComposeAgentService,
    tree: FileTree,
    where: str,
    accompanied: bool,
    problems: TaskProblems,
    *,
    shared: frozenset[str],
    internal: bool,
) -> ComposeFacts:
    """Read the service in which the agent works; ``accompanied``: there are others; ``shared``: volumes with them;
    ``internal``: its networks lead nowhere else."""
    command = _words(given.command, f"{where}.command", problems)
    shell = len(command) == 3 and command[0] in {"sh", "bash", "/bin/sh", "/bin/bash"}
    waits = (command[2] if shell else " ".join(command)) in _WAITS
    capabilities = _capabilities(given)
    if missing := [each for each in BASE_CAPABILITIES if each not in capabilities]:
        problems.add(
            f"{where}.cap_drop: {', '.join(missing)}", "the harness's own programs in the agent's container need them"
        )
    for each in sorted(capabilities - {*BASE_CAPABILITIES, "NET_BIND_SERVICE"}):
        problems.add(f"{where}.cap_add: {each}", f"a sandbox has {', '.join(BASE_CAPABILITIES)}: others are not safe")
    if given.network_mode and accompanied:
        problems.add(f"{where}.network_mode: {given.network_mode!r}", "its services could not be reached")
    limits = given.deploy.resources.limits
    build = _plan(given.build, where, problems)
    return ComposeFacts(
        "" if build else given.image,
        build,
        _environment(given, tree, where, problems),
        given.working_dir,
        given.mem_limit or limits.memory,
        given.cpus or limits.cpus,
        given.pids_limit or limits.pids,
        given.shm_size,
        tuple(given.tmpfs),
        given.user,
        given.hostname,
        read_host_folders(given, tree, where, problems),
        read_shared_folders(given, shared, tree),
        _entrypoint(given, where, problems),
        () if waits else tuple(command),
        _agent_health(given.healthcheck),
        given.network_mode == "none" or internal,
        given.build is not None and given.build.network == "none",
        _ulimits(given),
    )


def read_side_service(
    name: str,
    given: ComposeSideService,
    folder: FileTree,
    where: str,
    problems: TaskProblems,
    *,
    shared: frozenset[str],
    relations: ServiceRelations,
) -> list[TaskService]:
    """Read a service beside the agent's; none, with problems, if it cannot run."""
    build = None
    if plan := _plan(given.build, where, problems):
        build = read_build_context(folder, plan, (), problems)
        if build is None:
            return []
    elif not given.image:
        problems.add(f"{where} has no image", "add image or build")
        return []
    if folders := read_host_folders(given, folder, where, problems):
        build = copy_host_folders(build or build_from(given.image), folders, folder, problems)
    capabilities = _capabilities(given)
    for each in sorted(capabilities - set(SERVICE_CAPABILITIES)):
        problems.add(
            f"{where}.cap_add: {each}", f"a service has at most {', '.join(SERVICE_CAPABILITIES)}: others are not safe"
        )
    limits, default = given.deploy.resources.limits, TaskService(name)
    return [
        TaskService(
            name,
            "" if build else given.image,
            build,
            tuple(_words(given.command, f"{where}.command", problems)),
            _environment(given, folder, where, problems),
            _health(given.healthcheck),
            given.mem_limit or limits.memory or default.memory_mb,
            given.cpus or limits.cpus or default.cpus,
            given.shm_size or default.shm_mb,
            tuple(given.tmpfs),
            read_shared_folders(given, shared, folder),
            _entrypoint(given, where, problems),
            given.user,
            given.working_dir,
            _ulimits(given),
            given.hostname,
            aliases=tuple(relations.aliases),
            depends_on=relations.depends_on,
            ends=relations.ends,
            pids=given.pids_limit or limits.pids or default.pids,
            capabilities=tuple(each for each in SERVICE_CAPABILITIES if each in capabilities),
            read_only=given.read_only,
            stdin_open=given.stdin_open,
            tty=given.tty,
            restart=_restart(given),
        )
    ]


def _capabilities(given: ComposeService) -> set[str]:
    """Return what is left of a sandbox's capabilities by the rules of Docker, where those that are added come last."""
    added, dropped = (
        {name.upper().removeprefix("CAP_") for name in names} for names in (given.cap_add, given.cap_drop)
    )
    return (set[str]() if "ALL" in dropped else {*BASE_CAPABILITIES} - dropped) | added


def _restart(given: ComposeSideService) -> str:
    """Return when the service is started again, as :attr:`TaskService.restart` has it."""
    policy, said = given.deploy.restart_policy, given.restart
    if policy:  # it comes first
        limit = f":{policy.max_attempts}" if policy.max_attempts else ""
        said = {"none": "no", "any": "always", "on-failure": f"on-failure{limit}"}[policy.condition]
    return {"no": "", "unless-stopped": "always"}.get(said, said.removesuffix(":0"))


def _plan(given: ComposeBuild | None, where: str, problems: TaskProblems) -> BuildPlan | None:
    if given is None:
        return None
    args = _texts(given.args, f"{where}.build.args", problems)
    context = posixpath.normpath(given.context)
    if given.dockerfile_inline:
        return BuildPlan.of_inline(context, given.dockerfile_inline, args, given.target)
    return BuildPlan(context, posixpath.normpath(given.dockerfile or "Dockerfile"), args, given.target)


def _entrypoint(given: ComposeService, where: str, problems: TaskProblems) -> tuple[str, ...] | None:
    return None if given.entrypoint is None else tuple(_words(given.entrypoint, f"{where}.entrypoint", problems))


def _ulimits(given: ComposeService) -> tuple[ProcessLimit, ...]:
    return tuple(ProcessLimit(name, each.soft, each.hard) for name, each in given.ulimits.items())


def _words(command: str | list[str] | None, where: str, problems: TaskProblems) -> list[str]:
    if not isinstance(command, str):
        return list(command or ())
    try:
        return shlex.split(command)
    except ValueError as error:
        problems.add(f"{where}: {command!r}", str(error))
        return []


def _health(given: ComposeHealthcheck) -> str | None:
    """Return the shell command of a check; empty if none is named, None if the image's own is switched off too."""
    test = [given.test] if isinstance(given.test, str) else given.test
    if given.disable or test[:1] == ["NONE"]:
        return None
    if not test:
        return ""
    if test[0] == "CMD":
        return shlex.join(test[1:])
    return test[1] if test[0] == "CMD-SHELL" and len(test) > 1 else test[0]


def _agent_health(given: ComposeHealthcheck) -> TaskHealthcheck | None:
    """Return the check with Docker's defaults; the first interval, after which Docker begins, is part of the start."""
    interval, command = given.interval or 30.0, _health(given)
    if not command:
        return None
    start, often = given.start_period + interval, min(given.start_interval or 5.0, interval)
    return TaskHealthcheck(
        shlex.join(["sh", "-c", command]), interval, given.timeout or 30.0, start, often, given.retries or 3
    )


def _environment(given: ComposeService, tree: FileTree, where: str, problems: TaskProblems) -> dict[str, str]:
    of_files = read_env_files(given.env_file, tree, where, problems)
    return of_files | _texts(given.environment, f"{where}.environment", problems)


def _texts(values: Mapping[str, object], where: str, problems: TaskProblems) -> dict[str, str]:
    found: dict[str, str] = {}
    for key, value in values.items():
        if key.startswith(_GRADER):
            continue
        if value is None:
            problems.add(f"{where}: {key} has no value", "no value is taken from the host's environment")
        else:
            found[key] = scalar_text(value)
    return found

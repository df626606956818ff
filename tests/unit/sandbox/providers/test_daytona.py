"""If these fail, Daytona's sandboxes cost money after their run, a task runs without what it needs, or a failure of
Daytona is attributed to the agent."""

from __future__ import annotations

import asyncio
import importlib
import importlib.util
import inspect
import io
import tarfile
from dataclasses import fields, replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from protocol.errors import UserError
from sandbox.agent_programs import AgentPrograms
from sandbox.errors import BuildError, SandboxLost, SandboxStartError, SandboxVanished, TaskFault
from sandbox.process_limits import ProcessLimit
from sandbox.providers.daytona import handle as machines
from sandbox.providers.daytona import sdk as seam
from sandbox.providers.daytona.provider import DaytonaOptions, daytona_provider
from sandbox.tasks.task import Task
from sandbox.tasks.task_containers import ImageBuild, TaskService
from sandbox.tasks.task_grading import GradingLevel
from sandbox.tasks.task_network import NetworkMode, TaskNetwork
from tests.support.fakes import fake_daytona
from tests.support.fakes.fake_daytona import AsyncSandbox, CreateSandboxFromImageParams, FakeSdk

TASK = Task(id="t", instruction="x", image="debian:12", memory_mb=3000, cpus=1.5, env={"A": "b"})


class FakeDaytonaContainer:
    """A container in which every call succeeds at once."""

    def __init__(self) -> None:
        self.ended = False
        self.code = 0
        self.verbs: list[str] = []
        self.failures: dict[str, int] = {}
        """The code with which the next call of a verb fails."""
        self.uploaded: list[bytes] = []

    async def run(self, command: str, cwd: str) -> tuple[int, str]:
        self.verbs.append(command.rpartition(" driver ")[2].split()[0])
        return self.failures.pop(self.verbs[-1], self.code), "@sbx 1:2 \n"

    async def write_files(self, files: dict[str, bytes]) -> None:
        self.uploaded += files.values()

    async def read_file(self, path: str) -> bytes:
        return b""

    async def remove(self) -> None:
        self.ended = True


class Lab(FakeSdk):
    """``hold``: an event that is set when a sandbox is requested, and one that is awaited before it exists."""

    def __init__(self, code: int = 0) -> None:
        super().__init__(self.ground)
        self.grounds: list[FakeDaytonaContainer] = []
        self.code = code
        self.failures: dict[str, int] = {}
        self.hold: tuple[asyncio.Event, asyncio.Event] | None = None

    async def ground(self, _: CreateSandboxFromImageParams) -> FakeDaytonaContainer:
        if self.hold is not None:
            self.hold[0].set()
            await self.hold[1].wait()
        self.grounds.append(FakeDaytonaContainer())
        self.grounds[-1].code = self.code
        self.grounds[-1].failures = dict(self.failures)
        return self.grounds[-1]


async def test_a_sandbox_has_its_tasks_settings_and_a_time_limit() -> None:
    lab = Lab()
    async with daytona_provider({}, lab) as provider:
        sandbox = await provider.open(TASK, 601.0)
        (box,) = lab.sandboxes
        params = box.params
        assert (params.image, params.env_vars, params.os_user) == ("debian:12", {"A": "b"}, "root")
        assert (params.resources.cpu, params.resources.memory) == (2, 3)
        assert (params.ephemeral, params.ttl_minutes, params.auto_stop_interval) == (True, 11, 15)
        assert params.network_block_all
        await provider.renew()
        assert box.activity_refreshes == 1
        await sandbox.close()
        await provider.renew()
        assert (box.activity_refreshes, box.deleted) == (1, True)


async def test_open_sandboxes_are_deleted_even_if_the_provider_ends_in_an_error() -> None:
    lab = Lab()

    async def run() -> None:
        async with daytona_provider({}, lab) as provider:
            for _ in range(3):
                await provider.open(TASK)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await run()
    assert [ground.ended for ground in lab.grounds] == [True] * 3


async def test_a_sandbox_is_deleted_if_its_start_is_cancelled() -> None:
    lab = Lab()
    hold, came = asyncio.Event(), asyncio.Event()
    lab.hold = (came, hold)
    async with daytona_provider({}, lab) as provider, asyncio.TaskGroup() as group:
        opening = group.create_task(provider.open(TASK))
        await came.wait()
        opening.cancel()
        hold.set()
    assert [ground.ended for ground in lab.grounds] == [True]


@pytest.mark.parametrize(
    ("code", "why"), [(95, "has no bash 5"), (13, "cannot be prepared: code 13"), (127, "cannot be prepared")]
)
async def test_an_unusable_image_is_a_task_fault_and_its_sandbox_is_deleted(code: int, why: str) -> None:
    lab = Lab(code)
    async with daytona_provider({}, lab) as provider:
        with pytest.raises(TaskFault, match=why):
            await provider.open(TASK)
        assert lab.grounds[0].ended


@pytest.mark.parametrize("build", [None, ImageBuild({"Dockerfile": b"FROM debian:12\n"})])
async def test_a_sandbox_refused_by_daytona_is_an_infrastructure_failure(build: ImageBuild | None) -> None:
    lab = Lab()
    lab.create_error = fake_daytona.DaytonaError("quota")
    async with daytona_provider({}, lab) as provider:
        with pytest.raises(BuildError if build else SandboxStartError, match="quota"):
            await provider.open(replace(TASK, build=build))


async def test_an_image_is_built_from_its_dockerfile() -> None:
    lab = Lab()
    async with daytona_provider({}, lab) as provider:
        await provider.open(replace(TASK, build=ImageBuild({"d/Dockerfile": b"FROM x\n"}, "d/Dockerfile")))
        assert lab.sandboxes[0].params.image.dockerfile == "FROM x\n"


@pytest.mark.parametrize(
    ("task", "why"),
    [
        (replace(TASK, services=(TaskService("web"),)), "services"),
        (replace(TASK, ulimits=(ProcessLimit("nofile", 256, 256),)), "limits of each process"),
        (replace(TASK, tmpfs=("/run",)), "folders in memory"),
        (replace(TASK, read_only=("/data",)), "read-only folders"),
        (replace(TASK, hostname="box"), "a host name"),
        (replace(TASK, network=TaskNetwork(allowed_hosts=("8.8.0.0/16",))), "allowed ranges of addresses"),
        (replace(TASK, grading=GradingLevel.COMMIT), "grading at 'commit'"),
        (replace(TASK, build=ImageBuild({"Dockerfile": b""}, args={"A": "1"})), "build arguments"),
        (replace(TASK, image=""), r"names no image.*sandbox\.options="),
    ],
)
async def test_an_unsupported_task_is_refused_with_the_reason_and_nothing_is_started(task: Task, why: str) -> None:
    lab = Lab()
    async with daytona_provider({}, lab) as provider:
        with pytest.raises(UserError, match=why):
            await provider.open(task)
    assert lab.sandboxes == []


@pytest.mark.parametrize("image_has_them", [False, True])
async def test_an_agents_programs_are_uploaded_unless_the_image_has_them(tmp_path: Path, image_has_them: bool) -> None:
    (tmp_path / "harnesses" / "x-1" / "bin").mkdir(parents=True)
    (tmp_path / "harnesses" / "x-1" / "bin" / "x").write_bytes(b"program")
    lab = Lab()
    lab.failures = {} if image_has_them else {"link-programs": 2}
    async with daytona_provider(
        {}, lab, programs=AgentPrograms("harnesses/x-1", memory_mb=1024, pids=9), home=tmp_path
    ) as provider:
        await provider.open(TASK)
        (ground,), (box,) = lab.grounds, lab.sandboxes
        assert (box.params.resources.memory, box.params.resources.disk) == (4, 4)
    if image_has_them:
        assert (ground.uploaded, ground.verbs[1:3]) == ([], ["link-programs", "list-processes"])
        return
    assert ground.verbs[1:4] == ["link-programs", "unpack", "link-programs"]
    with tarfile.open(fileobj=io.BytesIO(ground.uploaded[0])) as tar:
        assert [member.name for member in tar if member.isreg()] == ["./bin/x"]


async def test_an_agents_programs_that_cannot_be_unpacked_are_named(tmp_path: Path) -> None:
    (tmp_path / "harnesses" / "x-1").mkdir(parents=True)
    lab = Lab()
    lab.failures = {"link-programs": 2, "unpack": 5}
    programs = AgentPrograms("harnesses/x-1", memory_mb=0, pids=9)
    async with daytona_provider({}, lab, programs=programs, home=tmp_path) as provider:
        with pytest.raises(SandboxStartError, match=r"cannot be unpacked in sandbox fake-0: code 5"):
            await provider.open(TASK)
        assert lab.grounds[0].ended


async def test_programs_that_are_not_installed_are_named_before_a_sandbox_starts(tmp_path: Path) -> None:
    programs = AgentPrograms("harnesses/x-1", memory_mb=0, pids=9)
    with pytest.raises(UserError, match=r"harnesses/x-1 does not exist.*longshore harness install"):
        async with daytona_provider({}, Lab(), programs=programs, home=tmp_path):
            raise AssertionError


async def test_the_agent_phase_may_reach_only_the_allowed_hosts() -> None:
    lab = Lab()
    network = TaskNetwork(agent=NetworkMode.PROXY, verify=NetworkMode.FULL, allowed_hosts=("pypi.org",))
    async with daytona_provider({}, lab) as provider:
        await provider.open(replace(TASK, network=network))
        params = lab.sandboxes[0].params
        assert (params.network_block_all, params.domain_allow_list) == (False, "pypi.org")


async def opened(lab: Lab) -> tuple[machines.DaytonaHandle, AsyncSandbox]:
    box = AsyncSandbox(fake_daytona.AsyncDaytona(), FakeDaytonaContainer(), CreateSandboxFromImageParams(image="x"))
    return machines.DaytonaHandle(box, lab), box


async def test_a_failed_connection_is_retried_and_then_an_infrastructure_failure(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(machines, "AGAIN_S", 0.0)
    machine, box = await opened(Lab())
    box.errors = [fake_daytona.DaytonaConnectionError("reset"), TimeoutError()]
    assert (await machine.call("list-processes")).words == ("1:2",)
    box.errors = [fake_daytona.DaytonaBadGatewayError("502"), fake_daytona.DaytonaRateLimitError("429")]
    assert (await machine.call("list-processes")).words == ("1:2",)
    box.errors = [fake_daytona.DaytonaConnectionError("reset")] * 3
    with pytest.raises(SandboxLost, match="does not answer"):
        await machine.call("list-processes")
    box.errors = [fake_daytona.DaytonaError("500")]
    with pytest.raises(SandboxLost, match="failed sandbox"):
        await machine.call("list-processes")


async def test_a_transferred_file_that_the_agent_removes_is_an_error_of_the_file_alone() -> None:
    machine, box = await opened(Lab())
    box.errors = [fake_daytona.DaytonaFileNotFoundError("/.longshore/x")]
    with pytest.raises(OSError, match="longshore"):
        await machine.download("/.longshore/x")
    assert machine.lost is None


async def test_a_deleted_sandbox_stays_vanished_without_a_cause() -> None:
    machine, box = await opened(Lab())
    box.deleted = True
    for _ in range(2):
        with pytest.raises(SandboxVanished):
            await machine.call("list-processes")
    assert machine.lost is not None


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"imgae": "x"}, r"imgae is not an option.*did you mean 'image'"),
        ({"image": 3}, "write a str"),
        ({"idle_minutes": 0}, "write a int, 1 or more"),
    ],
)
def test_invalid_options_are_refused_with_the_reason(options: dict[str, Any], why: str) -> None:
    with pytest.raises(UserError, match=why):
        DaytonaOptions.parse(options)


async def test_without_the_package_one_line_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(seam, "PACKAGE", "no_such_package_anywhere")
    with pytest.raises(UserError, match=r"pip install 'longshore\[daytona\]'"):
        async with daytona_provider({}):
            raise AssertionError


async def test_without_a_key_one_line_says_where_to_get_it() -> None:
    class Keyless(Lab):
        def AsyncDaytona(self, config: Any = None) -> Any:
            raise fake_daytona.DaytonaError("API key or JWT token is required")

    with pytest.raises(UserError, match="export DAYTONA_API_KEY="):
        async with daytona_provider({}, Keyless()):
            raise AssertionError


def parameters(function: Any) -> dict[str, inspect.Parameter]:
    return dict(inspect.signature(function).parameters)


@pytest.mark.skipif(importlib.util.find_spec("daytona") is None, reason="pip install 'longshore[daytona]'")
def test_the_fake_has_the_signatures_of_daytonas_sdk() -> None:
    """Each name, parameter and default of the fake is the SDK's: otherwise its tests would prove nothing."""
    real: ModuleType = importlib.import_module("daytona")
    files = importlib.import_module("daytona._async.filesystem").AsyncFileSystem
    pairs = {
        "AsyncDaytona.create": real.AsyncDaytona.create,
        "AsyncSandbox.delete": real.AsyncSandbox.delete,
        "AsyncSandbox.refresh_activity": real.AsyncSandbox.refresh_activity,
        "AsyncSandbox.update_network_settings": real.AsyncSandbox.update_network_settings,
        "AsyncProcess.exec": importlib.import_module("daytona._async.process").AsyncProcess.exec,
        "AsyncFileSystem.upload_files": files.upload_files,
    }
    for name, theirs in pairs.items():
        kind, _, method = name.partition(".")
        ours = parameters(getattr(getattr(fake_daytona, kind), method))
        known = parameters(theirs)
        for parameter in ours.values():
            assert parameter.name in known, f"{name} has no {parameter.name}"
            assert parameter.kind is known[parameter.name].kind, f"{name}: {parameter.name}"
            assert parameter.default == known[parameter.name].default, f"{name}: {parameter.name}"
    for made in ("DaytonaConfig", "CreateSandboxFromImageParams"):
        assert {each.name for each in fields(getattr(fake_daytona, made))} <= set(getattr(real, made).model_fields)
    for made in ("Resources", "FileUpload"):
        theirs = {each.name for each in fields(getattr(real, made))}
        assert {each.name for each in fields(getattr(fake_daytona, made))} <= theirs
    assert "path" in parameters(real.Image.from_dockerfile)
    assert [*parameters(files.download_file)][:2] == ["self", "args"]
    for name, error in vars(fake_daytona).items():
        if name.startswith("Daytona") and name.endswith("Error"):
            assert [kind.__name__ for kind in error.__mro__] == [kind.__name__ for kind in getattr(real, name).__mro__]

"""If these fail, a shell of the agent can see the tests arrive in a container that was opened for them."""

from __future__ import annotations

import asyncio
import posixpath
import tarfile
from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractContextManager, asynccontextmanager, nullcontext
from pathlib import Path
from threading import Event
from typing import IO, Any

import pytest

from sandbox.docker.container_spec import ContainerSpec
from sandbox.docker.files.file_status import ContainerFileStatus
from sandbox.docker.retry import DockerEngineError
from sandbox.errors import SandboxLost, SandboxStartError
from sandbox.grading.containers import carried_files, grading_container, transfer
from sandbox.grading.containers.artifacts import ArtifactCopyCancelledError, UnfitArtifactError
from sandbox.session.users import ContainerUser
from sandbox.tasks.task import Task
from sandbox.tasks.task_grading import GradingLevel

ARTIFACTS = ("/app",)


class FakeTestContainer:
    """A container: the agent's, or a second one."""

    def __init__(self, container: str, spec: ContainerSpec) -> None:
        self.container, self.spec, self.alive = container, spec, True
        self.workdir, self.excess_bytes = "/app", 0
        self.tests_user, self.tests_images = ContainerUser(), ()
        self.looked_after: list[str] = []
        self.engine = self

    def watch_verifier(self, bench: FakeTestContainer) -> AbstractContextManager[object]:
        self.looked_after.append(bench.container)
        return nullcontext()

    async def close(self) -> None:
        self.alive = False

    async def remove(self, container: str) -> None:
        assert container == self.container

    async def inspect(self, container: str, *, size: bool = False) -> dict[str, int]:
        return {"SizeRw": self.spec.limits.disk_bytes + self.excess_bytes}

    async def setup(self, *_: object) -> None: ...

    async def write_files(self, *_: object, **__: object) -> None: ...


class Steps:
    """Containers that were copied, started, cleared and got private folders, in order."""

    def __init__(self) -> None:
        self.done: list[str] = []

    async def kill_agent_processes(self, session: FakeTestContainer) -> None:
        self.done.append(f"clear {session.container}")

    async def repair_devices(self, session: FakeTestContainer) -> None:
        self.done.append(f"mend {session.container}")

    @asynccontextmanager
    async def private_folders(self, session: FakeTestContainer, modes: dict[str, int]) -> AsyncGenerator[None]:
        self.done.append(f"hide {' '.join(sorted(modes))}")
        yield
        self.done.append("show")

    @asynccontextmanager
    async def committed_image(self, engine: object, container: str, *, pause: bool) -> AsyncGenerator[str]:
        assert not pause
        self.done.append(f"copy {container}")
        yield "copied"

    @asynccontextmanager
    async def pause_container(self, engine: object, container: str) -> AsyncGenerator[None]:
        yield

    async def start(self, engine: object, spec: ContainerSpec, workdir: str, limits: object) -> FakeTestContainer:
        self.done.append(f"start {spec.image}")
        return FakeTestContainer(spec.image, spec)


def replace_names(monkeypatch: pytest.MonkeyPatch, **fakes: object) -> None:
    """Replace functions by fakes in every module of the grading container."""
    for name, fake in fakes.items():
        for module in (grading_container, carried_files, transfer):
            if hasattr(module, name):
                monkeypatch.setattr(module, name, fake)


@pytest.fixture
def steps(monkeypatch: pytest.MonkeyPatch) -> Steps:
    made = Steps()
    replace_names(
        monkeypatch,
        kill_agent_processes=made.kill_agent_processes,
        repair_devices=made.repair_devices,
        private_folders=made.private_folders,
        committed_image=made.committed_image,
        pause_container=made.pause_container,
    )
    monkeypatch.setattr(grading_container.SandboxSession, "start", made.start)

    async def nothing(*_: object, **__: object) -> list[Any]:
        return []

    async def nowhere(*_: object) -> dict[str, str]:
        return {}

    replace_names(monkeypatch, collect_artifacts=nothing, resolve_paths=nowhere, clear_paths=nothing)
    return made


@pytest.mark.parametrize(
    ("level", "artifacts", "expected"),
    [
        (GradingLevel.LIVE, (), ["hide /.sbx-tmp /tests", "tests", "show"]),
        (GradingLevel.SAME, (), ["clear agent", "mend agent", "tests"]),
        (GradingLevel.COMMIT, (), ["copy agent", "clear agent", "start copied", "clear copied", "tests"]),
        (GradingLevel.ARTIFACTS, ARTIFACTS, ["clear agent", "start clean", "tests"]),
        (GradingLevel.SIBLING, ARTIFACTS, ["start clean", "tests"]),
        (GradingLevel.SIBLING, (), ["copy agent", "start copied", "clear copied", "tests"]),
    ],
)
async def test_tests_are_copied_in_only_after_the_agents_processes_are_gone_or_shut_out(
    steps: Steps, level, artifacts, expected
):
    agents: Any = FakeTestContainer("agent", ContainerSpec("clean", Path("/toolchain"), {}))
    task = Task("t", "", grading=level, artifacts=artifacts)
    async with grading_container.open_grading_container(agents, task, 1.0) as bench:
        steps.done.append("tests")
        assert bench.alive
    assert steps.done == expected
    assert bench.alive is (level in {GradingLevel.LIVE, GradingLevel.SAME})
    assert agents.looked_after == [each.removeprefix("start ") for each in steps.done if each.startswith("start ")]


@pytest.mark.parametrize("level", [GradingLevel.COMMIT, GradingLevel.SIBLING])
async def test_files_that_are_longer_than_the_disk_limit_are_not_copied(steps: Steps, level: GradingLevel):
    agents: Any = FakeTestContainer("agent", ContainerSpec("clean", Path("/toolchain"), {}))
    agents.excess_bytes = 1
    with pytest.raises(UnfitArtifactError, match="disk limit is 2048 MiB"):
        async with grading_container.open_grading_container(agents, Task("t", "", grading=level), 1.0):
            pass
    assert not any(each.startswith(("copy", "start")) for each in steps.done)


class Work:
    """Fails a given number of times."""

    def __init__(self, *failures: Exception) -> None:
        self.failures, self.times = list(failures), 0

    async def do(self) -> str:
        self.times += 1
        if self.failures:
            raise self.failures.pop(0)
        return "done"


async def works() -> bool:
    return True


async def fails() -> bool:
    return False


@pytest.mark.parametrize("error", [DockerEngineError("no"), SandboxStartError("no")])
async def test_a_transfer_is_the_agents_fault_only_if_it_fails_twice_while_the_daemon_works(error: Exception):
    """Otherwise a busy host costs an honest agent its reward, or an agent that broke its container gets a new one."""
    assert await transfer.retry_transfer(Work().do, fails) == "done"
    assert await transfer.retry_transfer(Work(error).do, works) == "done"
    with pytest.raises(UnfitArtifactError, match="no"):
        await transfer.retry_transfer(Work(error, error).do, works)
    once = Work(error, error)
    with pytest.raises(type(error)):
        await transfer.retry_transfer(once.do, fails)
    assert once.times == 1


class Archives:
    """The daemon's archive calls for a container in which ``/link`` leads somewhere."""

    def __init__(self, leads_to: str) -> None:
        self.leads_to = leads_to
        self.read: list[str] = []

    async def status(self, engine: object, container: str, path: str) -> ContainerFileStatus | None:
        return ContainerFileStatus(1 << 27, 0, self.leads_to) if path == "/link" else ContainerFileStatus(0, 0, path)

    async def read_archive(self, engine: object, container: str, path: str, into: IO[bytes], most: int) -> bool:
        self.read.append(path)
        if path == "/none":
            return False
        with tarfile.open(fileobj=into, mode="w") as tar:
            tar.addfile(tarfile.TarInfo(posixpath.basename(path)))
        return True


async def taken(archives: Archives, monkeypatch: pytest.MonkeyPatch, folder: Path, *paths: str) -> list[str]:
    """Return the target and the top of what was found."""

    async def checked(*_: object) -> None: ...

    replace_names(
        monkeypatch,
        container_file_status=archives.status,
        read_archive=archives.read_archive,
        check_user_files=checked,
    )
    agents: Any = FakeTestContainer("agent", ContainerSpec("clean", Path("/toolchain"), {}))
    found = await carried_files.collect_artifacts(agents, {each: each for each in paths}, folder, live=False)
    tops: list[str] = []
    for each in found:
        with tarfile.open(each.tar) as tar:
            tops.append(f"{each.path} {tar.getnames()}")
    return tops


@pytest.mark.parametrize("leads_to", ["/srv/app", "/develop/v2"])
async def test_a_linked_artifact_is_replaced_by_its_target(monkeypatch, tmp_path, leads_to: str):
    archives = Archives(leads_to)
    assert await taken(archives, monkeypatch, tmp_path, "/link", "/app") == ["/link ['link']", "/app ['app']"]
    assert archives.read == [leads_to, "/app"]


async def test_an_artifact_that_is_a_dangling_link_is_left_out(monkeypatch, tmp_path):
    assert await taken(Archives("/none"), monkeypatch, tmp_path, "/link", "/none") == []


@pytest.mark.parametrize("leads_to", ["/", "/proc/1/root", "/sys", "/dev", "/tests/expected", "/.sbx/bash"])
async def test_a_link_to_files_outside_the_agents_area_is_refused(monkeypatch, tmp_path, leads_to: str):
    archives = Archives(leads_to)
    with pytest.raises(UnfitArtifactError, match=f"/link is a link to {leads_to}"):
        await taken(archives, monkeypatch, tmp_path, "/link")
    assert not archives.read


async def test_a_cancelled_grading_stops_packing(monkeypatch, tmp_path):
    """Otherwise its thread keeps the process alive while it packs the agent's folders."""
    begun, ended = Event(), Event()

    def endless(source: Path, target: Path, top: str, name: str, unwanted: Callable[[], bool], **_: object) -> None:
        begun.set()
        while not unwanted():
            pass
        ended.set()
        raise ArtifactCopyCancelledError

    monkeypatch.setattr(carried_files, "sanitize_tar", endless)
    async with asyncio.TaskGroup() as group:
        packing = group.create_task(taken(Archives("/srv"), monkeypatch, tmp_path, "/app"))
        assert await asyncio.to_thread(begun.wait, 60)
        packing.cancel()
    assert await asyncio.to_thread(ended.wait, 60)


async def test_a_lost_container_is_never_the_agents_fault():
    with pytest.raises(SandboxLost):
        await transfer.retry_transfer(Work(SandboxLost("gone")).do, works)

"""The container that a task's tests run in, by its grading level.

``same``       the agent's own, once nothing else in it lives, its ``/dev`` as it was;
``commit``     a copy: freeze, copy, unfreeze, kill what is left, start a container of the copy, kill what PID 1 has
               started there: its shell is the agent's bash; what lies on the image's volumes is carried over;
``artifacts``  a clean container of the task's image, set up as for an agent, and the declared artifacts in the place of
               what it has there, whether the agent has changed them, made them or removed them;
``sibling``    as ``artifacts``, or as ``commit`` where none are declared, in the network of the agent's container.
               Its processes go on: the tests speak with live services, and those may answer what they like.

What the tests write in a place beside the agent's reaches nobody: it is gone when its context ends, with its image; it
also ends by its own deadline.

That something of the agent's cannot be carried to such a place is its own doing only where that is shown: it fails, the
daemon then does the same with a container of the task's own image, and it fails again.
"""

from __future__ import annotations

import asyncio
import posixpath
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, nullcontext, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from threading import Event
from typing import NamedTuple, TypeVar

from protocol.errors import InfraError
from sandbox.docker.committed_images import COMMIT_TIMEOUT_S, committed_image, writable_layer_bytes
from sandbox.docker.container_spec import ContainerSpec
from sandbox.docker.file_status import container_file_status
from sandbox.docker.retry import DockerEngineError
from sandbox.docker.user_files import check_user_files
from sandbox.errors import SandboxDestroyed, SandboxLost, SandboxStartError
from sandbox.grading.containers.agent_processes import kill_agent_processes
from sandbox.grading.containers.artifacts import MAX_ARTIFACT_BYTES, UnfitArtifactError, sanitize_tar
from sandbox.grading.containers.container_calls import (
    ArchiveTooLargeError,
    pause_container,
    read_archive,
    write_archive,
)
from sandbox.grading.containers.container_paths import clear_paths, image_volumes, resolve_paths
from sandbox.grading.containers.devices import repair_devices
from sandbox.grading.containers.scratch import scratch_folder
from sandbox.grading.isolation.environment import TESTS_DIR
from sandbox.session.sandbox_session import SandboxSession, SessionLimits
from sandbox.tasks.file_tree import is_within
from sandbox.tasks.task import GradingLevel, Task

T = TypeVar("T")


class _Packed(NamedTuple):
    """As the agent's container has it."""

    goes_to: str
    top: str
    """Of the tar."""
    tar: Path


class _Carried(NamedTuple):
    path: str
    tar: Path
    """Its base name is the top of it."""


_SETUP_S = 120.0
_REFUSED = (DockerEngineError, SandboxStartError)
_NO_ARTIFACT = ("/proc", "/sys", "/dev", TESTS_DIR, "/.sbx")
_SPARE_S = 300.0
"""Beyond setup and tests: what a container beside the agent's lives for at most on a busy host."""


@asynccontextmanager
async def open_grading_container(
    session: SandboxSession, task: Task, test_timeout_s: float
) -> AsyncGenerator[SandboxSession]:
    """Where to run the tests.  Raises Unfit (the agent's doing), SandboxDestroyed, InfraError."""
    match task.grading:
        case GradingLevel.SAME:
            await kill_agent_processes(session)
            await repair_devices(session)
            yield session
        case GradingLevel.COMMIT:
            async with _copied_container(session, _spec(session), task, test_timeout_s, live=False) as bench:
                yield bench
        case GradingLevel.ARTIFACTS:
            await kill_agent_processes(session)
            async with _clean_container(session, _spec(session), task, test_timeout_s, live=False) as bench:
                yield bench
        case GradingLevel.SIBLING:
            joined = replace(_spec(session), network=f"container:{session.container}")
            if task.artifacts:
                async with _clean_container(session, joined, task, test_timeout_s, live=True) as bench:
                    yield bench
            else:
                async with _copied_container(session, joined, task, test_timeout_s, live=True) as bench:
                    yield bench


def longest_overhead_s(level: GradingLevel) -> float:
    """What a grading takes at most beyond its tests: two copies, and one of an untouched container between them."""
    return _SPARE_S if level is GradingLevel.SAME else _SPARE_S + _SETUP_S + 3 * COMMIT_TIMEOUT_S


def _spec(session: SandboxSession) -> ContainerSpec:
    if session.spec is None:
        raise SandboxLost(f"container {session.container[:12]} cannot be copied: nobody knows how it was made")
    return session.spec


@asynccontextmanager
async def _frozen(session: SandboxSession, *, live: bool) -> AsyncGenerator[None]:
    """The agent's container holds still.  One that cannot be frozen is cleared first.  Raises EngineError for one that
    cannot be frozen and must live."""
    async with AsyncExitStack() as stack:
        try:
            await stack.enter_async_context(pause_container(session.engine, session.container))
        except DockerEngineError:
            if live and session.alive:
                raise
            await kill_agent_processes(session)  # and a container that is gone is named by its cause
        yield


@asynccontextmanager
async def _image_copy(
    session: SandboxSession, folder: Path, *, live: bool
) -> AsyncGenerator[tuple[str, list[_Carried]]]:
    """An image of the agent's container as it stands, and what lies on its volumes.  Raises Unfit for one whose files
    are longer than its disk limit: the copy of a hole is no hole."""
    async with AsyncExitStack() as stack:
        async with _frozen(session, live=live):
            size, most = await writable_layer_bytes(session.engine, session.container), _spec(session).limits.disk_bytes
            if size > most:
                raise UnfitArtifactError(f"its files are {size >> 20} MiB long, and its disk limit is {most >> 20} MiB")
            volumes = image_volumes(await session.engine.inspect(session.container))
            there = await _read(session, {each: each for each in volumes}, folder) if volumes else []
            image = await stack.enter_async_context(committed_image(session.engine, session.container, pause=False))
        yield image, await _sanitize(there)


@asynccontextmanager
async def _copied_container(
    session: SandboxSession, spec: ContainerSpec, task: Task, test_timeout_s: float, *, live: bool
) -> AsyncGenerator[SandboxSession]:
    """A container of a copy of the agent's, in which nothing runs but PID 1."""
    works = partial(_untouched_works, session, spec, task, live=live)
    async with AsyncExitStack() as stack:
        copy = partial(_image_copy, session, stack.enter_context(scratch_folder()), live=live)
        image, volumes = await retry_transfer(lambda: stack.enter_async_context(copy()), works)
        if not live:
            await kill_agent_processes(session)
        copied = partial(
            _second_container, session, replace(spec, image=image, committed_from=spec.task_image), task, test_timeout_s
        )
        bench = await retry_transfer(lambda: stack.enter_async_context(copied()), works)
        await kill_agent_processes(bench)
        await _place_artifacts(bench, [each.path for each in volumes], volumes, works)
        yield bench


@asynccontextmanager
async def _clean_container(
    session: SandboxSession, spec: ContainerSpec, task: Task, test_timeout_s: float, *, live: bool
) -> AsyncGenerator[SandboxSession]:
    """A fresh container of the task's image, with the artifacts in the place of what its setup made."""
    works = partial(_untouched_works, session, spec, task, live=live)
    async with _second_container(session, spec, task, test_timeout_s) as bench:
        await bench.setup(task.files, task.setup, _SETUP_S)
        with scratch_folder() as folder:
            places = await resolve_paths(bench, task.artifacts)
            found = await retry_transfer(lambda: _take_artifacts(session, places, folder, live=live), works)
            await _place_artifacts(bench, list(places), found, works)
        yield bench


async def _take_artifacts(
    session: SandboxSession, places: Mapping[str, str], folder: Path, *, live: bool
) -> list[_Carried]:
    """Those of them that exist."""
    async with _frozen(session, live=True) if live else nullcontext():
        there = await _read(session, places, folder)
    return await _sanitize(there)


async def _read(session: SandboxSession, places: Mapping[str, str], folder: Path) -> list[_Packed]:
    """Where it goes → path, of each that exists: a tar, of what it leads to where it is a link."""
    await check_user_files(session.engine, session.container)
    room, there = MAX_ARTIFACT_BYTES, list[_Packed]()
    for number, (goes_to, path) in enumerate(places.items()):
        raw, real = folder / f"{number}.raw", await _real(session, path)
        try:
            with raw.open("wb") as file:
                if await read_archive(session.engine, session.container, real, file, room):
                    there.append(_Packed(goes_to, posixpath.basename(real), raw))
                room -= file.tell()
        except ArchiveTooLargeError as error:
            raise UnfitArtifactError(
                f"{', '.join(places.values())} hold more than {MAX_ARTIFACT_BYTES >> 20} MiB"
            ) from error
    return there


async def _real(session: SandboxSession, path: str) -> str:
    """What ``path`` leads to where it is a link."""
    found = await container_file_status(session.engine, session.container, path)
    if found is None or not found.is_link:
        return path
    if found.target == "/" or is_within(found.target, _NO_ARTIFACT):
        raise UnfitArtifactError(f"{path} is a link to {found.target}")
    return found.target


async def _sanitize(there: Sequence[_Packed]) -> list[_Carried]:
    """The same, fit to be unpacked.  When this is cancelled, its thread ends soon."""
    unwanted = Event()
    try:
        return await asyncio.to_thread(_cleaned, there, unwanted.is_set)
    finally:
        unwanted.set()


def _cleaned(there: Sequence[_Packed], unwanted: Callable[[], bool]) -> list[_Carried]:
    """Blocks."""
    found: list[_Carried] = []
    for goes_to, top, raw in there:
        sound = raw.with_suffix(".tar")
        sanitize_tar(raw, sound, top, posixpath.basename(goes_to), unwanted)
        raw.unlink()
        found.append(_Carried(goes_to, sound))
    return found


async def _place_artifacts(
    bench: SandboxSession, paths: Sequence[str], found: Sequence[_Carried], works: Callable[[], Awaitable[bool]]
) -> None:
    """What was ``found``, and nothing else, at ``paths``."""

    async def give() -> None:
        for path, tar in found:
            await write_archive(bench.engine, bench.container, posixpath.dirname(path), tar)

    await clear_paths(bench, paths)
    try:
        above = {posixpath.dirname(path) for path, _ in found} - {"/"}
        await bench.write_files({f"{each}/": b"" for each in above}, mode=0o755)
    except OSError as error:
        raise SandboxStartError(f"no room for what the agent left in a container beside its own: {error}") from error
    await retry_transfer(give, works)


async def retry_transfer(work: Callable[[], Awaitable[T]], works: Callable[[], Awaitable[bool]]) -> T:
    """What ``work`` gives.  Raises Unfit where it fails, ``works`` holds, and it fails again; else its own error."""
    try:
        return await work()
    except _REFUSED:
        if not await works():
            raise
    try:
        return await work()
    except _REFUSED as error:
        raise UnfitArtifactError(str(error)) from error


async def _untouched_works(session: SandboxSession, spec: ContainerSpec, task: Task, *, live: bool) -> bool:
    """Whether the daemon starts a container of the task's own image, freezes it where that is needed, and copies it,
    while the agent's lives on."""
    if not session.alive:
        raise await session.explain_end()
    with suppress(InfraError, SandboxDestroyed):
        async with (
            _second_container(session, spec, task, 0.0) as other,
            pause_container(session.engine, other.container) if live else nullcontext(),
            committed_image(session.engine, other.container, pause=False),
        ):
            return True
    return False


@asynccontextmanager
async def _second_container(
    session: SandboxSession, spec: ContainerSpec, task: Task, test_timeout_s: float
) -> AsyncGenerator[SandboxSession]:
    """One more container of the same owner, gone at the end."""
    life = _SETUP_S + test_timeout_s + _SPARE_S
    bench = await SandboxSession.start(session.engine, spec, task.workdir, SessionLimits(life, life))
    try:
        with session.watch_verifier(bench):
            yield bench
    finally:
        await asyncio.shield(_end(bench))


async def _end(bench: SandboxSession) -> None:
    """What is not gone then is swept; the verdict stands."""
    with suppress(DockerEngineError):
        await bench.close()
        await bench.engine.remove(bench.container)  # its image can only go after it

"""The container in which a task's tests run, by its grading level.

``live``       the agent's own container as the agent left it, with folders for the tests that nothing in it can see
(:mod:`sandbox.session.private_folders`); ``same``       the agent's own container, once no other process lives in it
and its ``/dev`` is repaired; ``commit``     a copy: freeze, copy, unfreeze, kill what is left, start a container of the
copy, kill what PID 1 has started there (its shell is the agent's bash), and copy the files on the image's volumes;
``artifacts``  a clean container of the task's image, set up as for an agent, with the declared artifacts in place of
its own files, whether the agent has changed, created or removed them; ``sibling``    like ``artifacts``, or like
``commit`` if none are declared, in the network of the agent's container. The agent's processes keep running: the tests
speak to live services, whose answers are not trusted.

Files that the tests write in a second container reach nothing else: it is removed when its context ends, with its
image, and has a deadline of its own.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path

from sandbox.docker.container_spec import ContainerLimits, ContainerSpec
from sandbox.docker.files.committed_images import COMMIT_TIMEOUT_S, committed_image, writable_layer_bytes
from sandbox.grading.containers.agent_processes import kill_agent_processes
from sandbox.grading.containers.artifacts import UnfitArtifactError
from sandbox.grading.containers.carried_files import (
    CarriedFiles,
    collect_artifacts,
    pack_files,
    sanitize_files,
    unpack_files,
)
from sandbox.grading.containers.container_paths import image_volumes, resolve_paths
from sandbox.grading.containers.devices import repair_devices
from sandbox.grading.containers.scratch import scratch_folder
from sandbox.grading.containers.second_container import (
    SETUP_TIMEOUT_S,
    SPARE_S,
    open_second_container,
    spec_of,
)
from sandbox.grading.containers.transfer import freeze_agent, retry_transfer, untouched_container_works
from sandbox.grading.hidden_tests import folders_for_tests
from sandbox.grading.isolation.environment import TESTS_DIR
from sandbox.session.private_folders import private_folders
from sandbox.session.sandbox_session import SandboxSession
from sandbox.tasks.file_tree import is_within
from sandbox.tasks.task import Task
from sandbox.tasks.task_containers import TestsEnvironment
from sandbox.tasks.task_grading import GradingLevel


@asynccontextmanager
async def open_grading_container(
    session: SandboxSession, task: Task, test_timeout_s: float
) -> AsyncGenerator[SandboxSession]:
    """Open the container for the tests.

    Raises UnfitArtifactError (the agent's fault), SandboxDestroyed, InfraError, and UserError if this machine cannot
    provide the level.
    """
    match task.grading:
        case GradingLevel.LIVE:
            async with _live_container(session, task) as test_session:
                yield test_session
        case GradingLevel.SAME:
            await kill_agent_processes(session)
            await repair_devices(session)
            yield session
        case GradingLevel.COMMIT:
            async with _copied_container(session, spec_of(session), test_timeout_s, live=False) as test_session:
                yield test_session
        case GradingLevel.ARTIFACTS:
            goes_on = bool(task.steps)  # what the agent left may be what the next step needs
            if not goes_on:
                await kill_agent_processes(session)
            async with _clean_container(session, spec_of(session), task, test_timeout_s, live=goes_on) as test_session:
                yield test_session
        case GradingLevel.SIBLING:
            joined = replace(spec_of(session), network=f"container:{session.container}")
            if task.artifacts:
                async with _clean_container(session, joined, task, test_timeout_s, live=True) as test_session:
                    yield test_session
            else:
                async with _copied_container(session, joined, test_timeout_s, live=True) as test_session:
                    yield test_session


def longest_overhead_s(level: GradingLevel) -> float:
    """Return the maximum seconds beyond the tests: two copies, and one of an untouched container in between."""
    return (
        SPARE_S if level in (GradingLevel.LIVE, GradingLevel.SAME) else SPARE_S + SETUP_TIMEOUT_S + 3 * COMMIT_TIMEOUT_S
    )


@asynccontextmanager
async def _live_container(session: SandboxSession, task: Task) -> AsyncGenerator[SandboxSession]:
    """Open the agent's container beside its processes, which the caller ends before the block does."""
    async with AsyncExitStack() as stack:
        try:
            await stack.enter_async_context(private_folders(session, folders_for_tests(task)))
        except OSError as error:
            raise UnfitArtifactError(f"they can have no folder of their own: {error}") from error
        yield session


@asynccontextmanager
async def _image_copy(
    session: SandboxSession, folder: Path, *, live: bool
) -> AsyncGenerator[tuple[str, list[CarriedFiles]]]:
    """Make an image of the agent's container as it is, and copy the files on its volumes.

    Raises UnfitArtifactError if its files are longer than its disk limit: sparse files would become whole.
    """
    async with AsyncExitStack() as stack:
        async with freeze_agent(session, live=live):
            size, most = (
                await writable_layer_bytes(session.engine, session.container),
                spec_of(session).limits.disk_bytes,
            )
            if size > most:
                raise UnfitArtifactError(f"its files are {size >> 20} MiB long, and its disk limit is {most >> 20} MiB")
            volumes = image_volumes(await session.engine.inspect(session.container))
            packed = await pack_files(session, {each: each for each in volumes}, folder) if volumes else []
            image = await stack.enter_async_context(committed_image(session.engine, session.container, pause=False))
        yield image, await sanitize_files(packed)


@asynccontextmanager
async def _copied_container(
    session: SandboxSession, spec: ContainerSpec, test_timeout_s: float, *, live: bool
) -> AsyncGenerator[SandboxSession]:
    """Open a copy of the agent's container, in which nothing runs but PID 1."""
    works = partial(untouched_container_works, session, spec, session.workdir, live=live)
    async with AsyncExitStack() as stack:
        copy = partial(_image_copy, session, stack.enter_context(scratch_folder()), live=live)
        image, volumes = await retry_transfer(lambda: stack.enter_async_context(copy()), works)
        if not live:
            await kill_agent_processes(session)
        copied = partial(
            open_second_container,
            session,
            replace(spec, image=image, committed_from=spec.task_image),
            session.workdir,
            test_timeout_s,
        )
        test_session = await retry_transfer(lambda: stack.enter_async_context(copied()), works)
        await kill_agent_processes(test_session)
        await unpack_files(test_session, [each.path for each in volumes], volumes, works)
        yield test_session


def _limits_of(own: TestsEnvironment, limits: ContainerLimits) -> ContainerLimits:
    memory = own.memory_mb << 20 if own.memory_mb else limits.memory_bytes
    disk = own.storage_mb << 20 if own.storage_mb else limits.disk_bytes
    return replace(limits, memory_bytes=memory, cpus=own.cpus or limits.cpus, disk_bytes=disk)


@asynccontextmanager
async def _clean_container(
    session: SandboxSession, spec: ContainerSpec, task: Task, test_timeout_s: float, *, live: bool
) -> AsyncGenerator[SandboxSession]:
    """Open a fresh container of the task's image, or of the tests' own, with the artifacts in place of what its setup
    made."""
    own, workdir = task.tests_environment, session.workdir
    image = next((each for each in session.tests_images if each.of == own), None)
    if own is not None:
        spec, workdir = replace(spec, env=own.env, limits=_limits_of(own, spec.limits)), own.workdir or workdir
    if own is not None and image is not None:
        spec = replace(spec, image=image.name, image_config=image.config, volumes=())
        workdir = own.workdir or image.config.workdir or "/"
    works = partial(untouched_container_works, session, spec, workdir, live=live)
    async with open_second_container(session, spec, workdir, test_timeout_s) as test_session:
        if task.has_tests_image:
            await test_session.find_tests_user(task)
        else:
            await test_session.setup(task, SETUP_TIMEOUT_S)
        with scratch_folder() as folder:
            paths_by_target = await resolve_paths(test_session, task.artifacts)
            if task.has_tests_image:  # the tests are in this image already
                paths_by_target = {
                    real: path for real, path in paths_by_target.items() if not is_within(real, [TESTS_DIR])
                }
            collect = partial(
                collect_artifacts, session, paths_by_target, folder, live=live, excludes=task.artifact_excludes
            )
            found = await retry_transfer(collect, works)
            await unpack_files(test_session, list(paths_by_target), found, works)
        yield test_session

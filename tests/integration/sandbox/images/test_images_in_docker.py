"""If these fail, a data set's images are built repeatedly, fill the disk, or are removed under a running session."""

from __future__ import annotations

import asyncio
import io
import json
import tarfile
import uuid
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from protocol.errors import UserError
from sandbox.docker.engine import DockerEngine
from sandbox.errors import ImageError
from sandbox.host_record import SandboxHost
from sandbox.images import commands, engine_calls
from sandbox.images.image_names import built_image_name
from sandbox.images.store import ImageSettings, ImageStore
from sandbox.tasks.container_files.build_context import load_build_context
from sandbox.tasks.formats.terminal_bench import write_task
from sandbox.tasks.task import Task
from sandbox.tasks.task_containers import ImageBuild
from sandbox.tasks.task_network import NetworkMode, TaskNetwork
from tests.support.commands import run_json
from tests.support.tasks.dockerfiles import BROKEN_LINES

pytestmark = [pytest.mark.docker, pytest.mark.asyncio(loop_scope="session")]


@pytest_asyncio.fixture(loop_scope="session")
async def store(docker_engine: SandboxHost, engine: DockerEngine, tmp_path: Path) -> AsyncGenerator[ImageStore]:
    allowed = ("127.0.0.1:9",)
    settings = ImageSettings(tmp_path, docker_engine.base_image, failure_memory_s=3600, allow_registries=allowed)
    opened = await ImageStore.open(engine, settings)
    yield opened
    await opened.prune(0)


def task(dockerfile: str, **files: bytes) -> Task:
    """Return a task with a build that no other test has."""
    build = ImageBuild({"Dockerfile": f"{dockerfile}\nLABEL once={uuid.uuid4().hex}\n".encode(), **files})
    return Task(id="t", instruction="", build=build, network=TaskNetwork(build=NetworkMode.NONE))


def from_base(host: SandboxHost, rest: str = "", **files: bytes) -> Task:
    return task(f"FROM {host.base_image}\n{rest}", **files)


async def use(store: ImageStore, wanted: Task) -> str:
    async with store.reserve(wanted) as image:
        return image


def files_of(folder: Path, part: str) -> list[str]:
    return [each.name for each in folder.iterdir() if part in each.name]


async def test_an_image_is_built_once_however_many_ask_for_it(
    docker_engine: SandboxHost, engine: DockerEngine, store: ImageStore
):
    wanted = from_base(docker_engine, "COPY a /a\nRUN test $(cat /a) = 42 && test $(ls /sys/class/net) = lo", a=b"42")
    async with asyncio.TaskGroup() as group:
        users = [group.create_task(use(store, wanted)) for _ in range(50)]
    assert wanted.build is not None
    assert {each.result() for each in users} == {built_image_name(wanted.build)}
    assert store.statistics()[:2] == (1, 0)
    assert await engine_calls.find_image_id(engine, users[0].result())


async def test_what_is_written_for_buildkit_is_built(
    docker_engine: SandboxHost, engine: DockerEngine, store: ImageStore
):
    steps = """
ARG TARGETOS
RUN <<EOF
echo "one $TARGETOS" > /one
echo two > /two
EOF
RUN <<EOF
#!/usr/bin/env python3
print("three", file=open("/three", "w"))
EOF
COPY <<-EOT /four
\tfour
EOT
COPY --chmod=750 a /five
RUN --mount=type=cache,target=/cache --mount=type=bind,source=a,target=/six touch /cache/x && cat /six >> /four
RUN [ -z "$(find /four /five ! -newermt 1980-01-02)" ]
RUN [ "$(cat /one /two /three /four; stat -c %a /five)" = "$(printf 'one linux\\ntwo\\nthree\\nfour\\n42\\n750')" ]
"""
    wanted = from_base(docker_engine, f"LABEL first={uuid.uuid4().hex}\n{steps}", a=b"42\n")
    assert await engine_calls.find_image_id(engine, await use(store, wanted))


async def test_saved_images_are_loaded_with_their_names(
    docker_engine: SandboxHost, engine: DockerEngine, store: ImageStore, tmp_path: Path
):
    names = [await use(store, from_base(docker_engine, f"RUN echo {word} > /word")) for word in ("one", "two")]
    await store.save(names, tmp_path / "images.tar")
    for name in names:
        assert await engine_calls.remove_image(engine, name)
    assert sorted(await store.load(tmp_path / "images.tar")) == sorted(names)
    assert all([await engine_calls.find_image_id(engine, name) for name in names])
    assert names[0] in store.last_used(), "they are evicted like those that were built here"
    assert files_of(tmp_path, "tar") == ["images.tar"]


async def test_an_archive_that_is_none_is_an_error(store: ImageStore, tmp_path: Path):
    (tmp_path / "images.tar").write_bytes(b"nothing")
    with pytest.raises(ImageError, match=r"images\.tar is not an archive"):
        await store.load(tmp_path / "images.tar")
    with pytest.raises(ImageError, match="could not save 1 images"):
        await store.save(["longshore/none:1"], tmp_path / "none.tar")
    assert files_of(tmp_path, "none") == []


async def test_an_archive_with_a_damaged_configuration_is_an_error(
    docker_engine: SandboxHost, engine: DockerEngine, store: ImageStore, tmp_path: Path
):
    """The engine itself would load an image with another entrypoint, or none."""
    archive, name = tmp_path / "images.tar", await use(store, from_base(docker_engine, "ENV LONGSHORE_WORD=one"))
    await store.save([name], archive)
    archive.write_bytes(archive.read_bytes().replace(b"LONGSHORE_WORD=one", b"LONGSHORE_WORD=two"))
    assert await engine_calls.remove_image(engine, name)
    with pytest.raises(ImageError, match=r"images\.tar is damaged: .*[0-9a-f]{64}"):
        await store.load(archive)
    assert not await engine_calls.find_image_id(engine, name)


async def test_an_archive_without_names_is_an_error(
    docker_engine: SandboxHost, engine: DockerEngine, store: ImageStore, tmp_path: Path
):
    """Otherwise nothing is loaded that a task could find, and nothing says so."""
    image = await use(store, from_base(docker_engine))
    await store.save([await engine_calls.find_image_id(engine, image)], tmp_path / "images.tar")
    with pytest.raises(UserError, match="has no image with a name"):
        await commands.load(store, tmp_path / "images.tar")


async def test_a_broken_build_says_why_and_is_not_tried_again_at_once(docker_engine: SandboxHost, store: ImageStore):
    broken = from_base(docker_engine, "RUN echo the reason && exit 7")
    for _ in range(3):
        with pytest.raises(ImageError, match=r"(?s)returned a non-zero code: 7.*the reason"):
            await use(store, broken)
    assert (store.statistics().failed, store.statistics().refused) == (1, 2)


async def test_a_line_that_validate_names_as_broken_is_so_to_the_engine(docker_engine: SandboxHost, store: ImageStore):
    for line, _ in BROKEN_LINES:
        late = f"\nFROM {docker_engine.base_image} AS late" if "late" in line else ""
        with pytest.raises(ImageError) as failed:
            await use(store, from_base(docker_engine, f"{line}{late}", f=b""))
        assert '"message"' not in str(failed.value), "an error of the engine is a sentence, not JSON"


async def test_a_build_that_hangs_ends_at_its_time_and_leaves_nothing(
    docker_engine: SandboxHost, engine: DockerEngine, store: ImageStore
):
    hanging = from_base(docker_engine, "RUN sleep 1013")
    object.__setattr__(hanging, "build_timeout_s", 1.0)
    with pytest.raises(ImageError, match="took longer than 1 s"):
        await use(store, hanging)
    async with asyncio.timeout(60):
        while any("sleep 1013" in each["Command"] for each in await engine.docker.containers.list(all="1")):  # noqa: ASYNC110  the daemon tells nobody
            await asyncio.sleep(0.1)


async def test_eviction_removes_unused_images_and_never_reserved_or_used_ones(
    docker_engine: SandboxHost, engine: DockerEngine, store: ImageStore
):
    old, reserved, used, late = (from_base(docker_engine, f"RUN echo {n} > /n") for n in range(4))
    names = [await use(store, each) for each in (old, used)]
    body = {"Image": names[1], "Cmd": ["true"], "HostConfig": {"NetworkMode": "none"}}
    container = await engine.docker.containers.create(body)
    try:
        async with store.reserve(reserved) as held:
            latest = await use(store, late)
            assert await store.prune(0) == (names[0], latest)
            assert await engine_calls.find_image_id(engine, held)
            assert await engine_calls.find_image_id(engine, names[1])
    finally:
        await container.delete(force=True)
    assert set(await store.prune(0)) == {names[1], held}
    assert await engine_calls.find_image_id(engine, docker_engine.base_image), "an image that is not ours was taken"


async def test_an_evicted_image_is_made_again_when_it_is_asked_for(docker_engine: SandboxHost, store: ImageStore):
    wanted = from_base(docker_engine)
    name = await use(store, wanted)
    assert await store.prune(0) == (name,)
    assert await use(store, wanted) == name
    assert store.statistics().built == 2


async def test_several_image_stores_build_an_image_once(
    docker_engine: SandboxHost, engine: DockerEngine, tmp_path: Path
):
    settings = ImageSettings(tmp_path, docker_engine.base_image)
    stores = [await ImageStore.open(engine, settings) for _ in range(3)]
    wanted = from_base(docker_engine, "RUN echo x > /x")
    async with asyncio.TaskGroup() as group:
        for each in stores:
            group.create_task(use(each, wanted))
    assert sum(each.statistics().built for each in stores) == 1
    assert len(await stores[0].prune(0)) == 1


async def test_a_root_file_system_is_imported_and_an_unknown_image_fails_to_pull(
    engine: DockerEngine, store: ImageStore, tmp_path: Path
):
    name = f"longshore/test-import:{uuid.uuid4().hex}"
    await store.import_archive(archived(tmp_path), name)
    assert await use(store, Task(id="t", instruction="", image=name)) == name
    assert await store.prune(0) == (name,)
    absent = Task(id="t", instruction="", image="127.0.0.1:9/absent")  # nobody serves a registry there
    with pytest.raises(ImageError, match=r"could not pull the image 127\.0\.0\.1:9/absent:latest"):
        await use(store, absent)
    assert not await engine_calls.find_image_id(engine, "127.0.0.1:9/absent:latest")


def archived(folder: Path) -> Path:
    """Return a tar of a root file system."""
    archive = folder / "root.tar"
    with tarfile.open(archive, "w") as tar:
        entry = tarfile.TarInfo("hello")
        entry.size = 2
        tar.addfile(entry, io.BytesIO(b"hi"))
    return archive


@pytest.mark.slow
async def test_the_commands_build_import_list_and_prune(
    docker_engine: SandboxHost, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    record = {"docker_url": docker_engine.docker_url, "base_image": docker_engine.base_image, "engine_owner": ""}
    (tmp_path / "host.json").write_text(json.dumps({**record, "toolchain": str(docker_engine.toolchain)}))
    monkeypatch.setenv("LONGSHORE_HOME", str(tmp_path))

    async def command_output(*arguments: str, code: int = 0) -> dict[str, Any]:
        done = await asyncio.to_thread(run_json, "sandbox.images", *arguments)
        assert done.exit_code == code, done.stderr
        return done.output

    good, bad, empty = (tmp_path / name for name in ("good", "bad", "empty"))
    for folder, line in ((good, f"FROM {docker_engine.base_image}"), (bad, "FROM 127.0.0.1:9/absent")):
        folder.mkdir()
        (folder / "Dockerfile").write_text(f"{line}\nLABEL once={uuid.uuid4().hex}\n")
    empty.mkdir()
    made = await command_output("build", str(good), str(bad), code=1)
    assert (made["built"], [each["task"] for each in made["failed"]]) == (1, ["bad"])
    write_task(Task("one", "say hi", build=load_build_context(good), run_tests="#!/bin/sh\n"), tmp_path / "tasks")
    one = await command_output("build", str(tmp_path / "tasks" / "one"))
    assert one["images"] == [{"task": "one", "image": made["images"][0]["image"]}]
    image = made["images"][0]["image"]
    assert [each["image"] for each in (await command_output("list"))["listed"]] == [image]
    assert await command_output("prune") == {"evicted": [image]}
    assert (await command_output("list"))["listed"] == []
    name = f"longshore/test-import:{uuid.uuid4().hex}"
    taken = await command_output("import", str(await asyncio.to_thread(archived, tmp_path)), name)
    assert taken["images"] == [{"task": "root.tar", "image": name}]
    assert [each["image"] for each in (await command_output("list"))["listed"]] == [name]
    assert await command_output("prune") == {"evicted": [name]}
    assert "docker export" in (await command_output("import", str(tmp_path / "absent"), name, code=2))["error"]
    assert "has no task" in (await command_output("build", str(empty), code=2))["error"]
    nowhere = str(tmp_path / "absent" / "images.tar")
    refused = await command_output("save", str(tmp_path / "tasks"), "--output", nowhere, code=2)
    assert (
        refused["error"]
        == f"cannot write {nowhere}: {tmp_path / 'absent'} is not a folder: make it, or name another file"
    )
    (good / "task.toml").write_text("")
    refused = await command_output("build", str(good), code=2)
    assert "has no task" in refused["error"], "a Dockerfile beside task.toml is not the task's environment"

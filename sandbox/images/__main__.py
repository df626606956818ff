"""``longshore images {build,pull,import,prefetch,save,load,prune,list}``: build, pull, move and remove task images.

``build PATH`` takes a folder with a Dockerfile, or task folders; ``prefetch PATH`` builds or pulls every image that the
tasks there need; both keep existing images. ``save`` writes them to an archive as well, which ``load`` reads on a
machine that has neither a registry nor a network.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Annotated, Any, NamedTuple

from pydantic import Field
from tyro.conf import Positional, subcommand

from protocol.cli.arguments import AtLeastOne, CommandArguments, JsonFlag, option
from protocol.cli.command import Command
from protocol.cli.exit_codes import EXIT_FAILED, EXIT_OK
from protocol.cli.formatting import format_bytes
from protocol.cli.output import JsonOutput
from protocol.errors import UserError
from sandbox.docker.engine import DockerEngine
from sandbox.egress_proxy.lazy_proxy import LazyEgressProxy
from sandbox.egress_proxy.options import EgressProxyOptions
from sandbox.egress_proxy.settings import EgressProxySettings
from sandbox.errors import ImageError
from sandbox.host_record import HostSettings, current_host
from sandbox.images import engine_calls
from sandbox.images.image_names import TaskWithImage, is_built_name, with_tag
from sandbox.images.store import IMAGE_CONCURRENCY, ImageSettings, ImageStore
from sandbox.networking.networks import BuildNetworkContainer, SandboxNetworks
from sandbox.tasks.container_files.build_context import load_build_context
from sandbox.tasks.formats.registry import load_tasks
from sandbox.tasks.task import Task

CommandReport = dict[str, Any]


class BuildImagesArguments(EgressProxyOptions):
    """Build the images of tasks, or of a folder with a Dockerfile."""

    paths: Positional[Annotated[tuple[Path, ...], option("PATH ..."), Field(min_length=1)]]
    """Task folders, or folders with a Dockerfile."""
    concurrency: AtLeastOne = IMAGE_CONCURRENCY
    """Concurrent builds and pulls."""
    as_json: JsonFlag = False


class PrefetchImagesArguments(BuildImagesArguments):
    """Build or pull every image that the tasks need."""


class SaveImagesArguments(PrefetchImagesArguments):
    """Build or pull every image that the tasks need, and write them to an archive."""

    output: Annotated[Path, option("FILE")]
    """The archive: a tar, as `docker save` writes it."""


class LoadImagesArguments(CommandArguments):
    """Load the images of an archive that `longshore images save` has written."""

    archive: Positional[Annotated[Path, option("FILE")]]
    """The archive."""
    as_json: JsonFlag = False


class PullImagesArguments(CommandArguments):
    """Pull images by name."""

    names: Positional[Annotated[tuple[str, ...], option("NAME ..."), Field(min_length=1)]]
    """Names of images."""
    concurrency: AtLeastOne = IMAGE_CONCURRENCY
    """Concurrent builds and pulls."""
    as_json: JsonFlag = False


class ImportImageArguments(CommandArguments):
    """Import a tar of a root file system as a one-layer image."""

    archive: Positional[Annotated[Path, option("ARCHIVE")]]
    """The tar file, as `docker export` writes it."""
    name: Positional[Annotated[str, option("NAME")]]
    """Name of the image."""
    as_json: JsonFlag = False


class PruneImagesArguments(CommandArguments):
    """Remove longshore's images, least recently used first."""

    to_gb: Annotated[float, option("GiB"), Field(ge=0)] = 0.0
    """Size to shrink the images to, in GiB; 0 removes all."""
    as_json: JsonFlag = False


class ListImagesArguments(CommandArguments):
    """List longshore's images."""

    as_json: JsonFlag = False


class ImagesArguments(CommandArguments):
    """Build, pull, import and remove task images.

    Example: longshore images prefetch ./tasks
    """

    command: (
        Annotated[BuildImagesArguments, subcommand("build")]
        | Annotated[PrefetchImagesArguments, subcommand("prefetch")]
        | Annotated[SaveImagesArguments, subcommand("save")]
        | Annotated[LoadImagesArguments, subcommand("load")]
        | Annotated[PullImagesArguments, subcommand("pull")]
        | Annotated[ImportImageArguments, subcommand("import")]
        | Annotated[PruneImagesArguments, subcommand("prune")]
        | Annotated[ListImagesArguments, subcommand("list")]
    )


def run(given: ImagesArguments, out: JsonOutput) -> int:
    """Return 0 on success, 1 if some images could not be built or pulled."""
    outcome = asyncio.run(_run(given.command))
    out.set_result(outcome)
    if not out.enabled:
        sys.stdout.write("".join(f"{line}\n" for line in _lines(outcome)))
    return EXIT_FAILED if outcome.get("failed") else EXIT_OK


async def _run(chosen: CommandArguments) -> CommandReport:
    concurrency = chosen.concurrency if isinstance(chosen, BuildImagesArguments | PullImagesArguments) else 1
    fetches = isinstance(chosen, EgressProxyOptions)
    proxy = chosen.proxy_settings(EgressProxySettings) if fetches else EgressProxySettings()
    async with _store(concurrency, proxy) as (engine, store):
        match chosen:
            case SaveImagesArguments():
                return await _saved(store, _requested_tasks(chosen.paths, builds_only=False), chosen.output)
            case LoadImagesArguments():
                return await _loaded(store, chosen.archive)
            case BuildImagesArguments():
                builds_only = not isinstance(chosen, PrefetchImagesArguments)
                return await _make(store, _requested_tasks(chosen.paths, builds_only=builds_only))
            case PullImagesArguments():
                return await _make(store, [_Wanted(name, Task(name, "", image=name)) for name in chosen.names])
            case ImportImageArguments():
                return await _imported(store, chosen.archive, chosen.name)
            case PruneImagesArguments():
                return {"evicted": list(await store.prune(int(chosen.to_gb * (1 << 30))))}
            case _:
                return await _listed(engine, store)


@asynccontextmanager
async def _store(concurrency: int, proxy: EgressProxySettings) -> AsyncGenerator[tuple[DockerEngine, ImageStore]]:
    home = HostSettings.from_environment().home
    host = current_host()
    async with DockerEngine(host.docker_url) as engine, LazyEgressProxy(home / "egress_proxy", proxy) as opened:
        networks = await SandboxNetworks.open(engine, opened, BuildNetworkContainer(host.base_image, host.toolchain))
        settings = ImageSettings(home, host.base_image, concurrency=concurrency)
        yield engine, await ImageStore.open(engine, settings, networks.build_network)


class _Wanted(NamedTuple):
    name: str
    task: TaskWithImage


def _requested_tasks(paths: Sequence[Path], *, builds_only: bool) -> list[_Wanted]:
    requested: list[_Wanted] = []
    for path in paths:
        if (path / "Dockerfile").is_file() and not (path / "task.yaml").exists():
            name = path.resolve().name
            requested.append(_Wanted(name, Task(id=name, instruction="", build=load_build_context(path))))
            continue
        found = load_tasks(path)
        for problem in found.problems:
            print(problem, file=sys.stderr)
        for task in found.tasks:
            requested.append(_Wanted(task.id, task))
            requested += [_Wanted(service.name, service) for service in task.services]
            if task.tests_environment is not None:
                requested.append(_Wanted(f"{task.id}/tests", task.tests_environment))
    chosen = [each for each in requested if each.task.build or (each.task.image and not builds_only)]
    if not requested:
        raise UserError(f"{', '.join(map(str, paths))}: there is no task and no Dockerfile: name folders that have one")
    return chosen


async def _make(store: ImageStore, requested: Sequence[_Wanted]) -> CommandReport:
    images: list[CommandReport] = []
    failed: list[CommandReport] = []

    async def one(name: str, task: TaskWithImage) -> None:
        try:
            async with store.reserve(task) as image:
                images.append({"task": name, "image": image})
        except ImageError as error:
            failed.append({"task": name, "why": str(error)})

    async with asyncio.TaskGroup() as group:
        for each in requested:
            group.create_task(one(*each))
    counts = store.statistics()
    return {"images": images, "failed": failed, "built": counts.built, "pulled": counts.pulled}


async def _saved(store: ImageStore, requested: Sequence[_Wanted], archive: Path) -> CommandReport:
    if await asyncio.to_thread(archive.exists):
        raise UserError(f"{archive} exists already: nothing is overwritten, so name another file or remove it")
    outcome = await _make(store, requested)
    names = sorted({each["image"] for each in outcome["images"]})
    if not names:
        raise UserError("there is no image to save: the tasks need none, or none could be made")
    await store.save(names, archive)
    return outcome | {"archive": str(archive), "archive_bytes": (await asyncio.to_thread(archive.stat)).st_size}


async def _loaded(store: ImageStore, archive: Path) -> CommandReport:
    if not await asyncio.to_thread(archive.is_file):
        raise UserError(f"{archive} is not a file: name an archive that longshore images save has written")
    names = await store.load(archive)
    return {"images": [{"task": archive.name, "image": name} for name in names], "failed": []}


async def _imported(store: ImageStore, archive: Path, name: str) -> CommandReport:
    if not await asyncio.to_thread(archive.is_file):
        raise UserError(f"{archive} is not a file: name a tar of a root file system, as `docker export` writes it")
    try:
        await store.import_archive(archive, name)
    except ImageError as error:
        return {"images": [], "failed": [{"task": name, "why": str(error)}]}
    return {"images": [{"task": archive.name, "image": with_tag(name)}], "failed": []}


async def _listed(engine: DockerEngine, store: ImageStore) -> CommandReport:
    used = store.last_used()
    now = time.time()
    tagged = [(name, image) for image in await engine_calls.list_images(engine) for name in image.names]
    return {
        "listed": [
            {"image": name, "bytes": image.size_bytes, "unused_s": round(now - used[name])}
            for name, image in tagged
            if name in used
        ],
        "bytes": await store.used_bytes(),
        "others": sum(is_built_name(name) and name not in used for name, _ in tagged),
    }


def _lines(outcome: CommandReport) -> list[str]:
    lines = [f"{each['image']}  {each['task']}" for each in outcome.get("images", ())]
    lines += [f"{each['task']}: {each['why']}" for each in outcome.get("failed", ())]
    if "built" in outcome:
        lines.append(f"{outcome['built']} built, {outcome['pulled']} pulled, {len(outcome['failed'])} failed")
    lines += [f"evicted {name}" for name in outcome.get("evicted", ())]
    for each in outcome.get("listed", ()):
        lines.append(f"{each['image']}  {format_bytes(each['bytes'])}  unused for {each['unused_s']} s")
    if "archive" in outcome:
        lines.append(f"{outcome['archive']}: {format_bytes(outcome['archive_bytes'])}; longshore images load reads it")
    if "bytes" in outcome:
        used = format_bytes(outcome["bytes"])
        lines.append(f"{len(outcome['listed'])} longshore images, {used} besides shared layers")
    if outcome.get("others"):
        lines.append(f"{outcome['others']} more were built with another LONGSHORE_HOME and count towards its quota")
    return lines


COMMAND = Command("images", ImagesArguments, run)

if __name__ == "__main__":
    sys.exit(COMMAND.main())

"""``longshore images {build,pull,import,prefetch,save,load,prune,list}``: build, pull, move and remove task images.

``build PATH`` takes a folder with a Dockerfile, or tasks; ``prefetch TASKS`` builds or pulls every image that the tasks
need; both keep existing images, so that a second start makes only what is missing. ``save`` writes them to an archive
as well, which ``load`` reads on a machine that has neither a registry nor a network.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Annotated

from pydantic import Field
from tyro.conf import Positional, subcommand

from protocol.cli.arguments import AtLeastOne, CommandArguments, JsonFlag, TaskPatterns, option
from protocol.cli.command import Command
from protocol.cli.exit_codes import EXIT_FAILED, EXIT_OK
from protocol.cli.output import JsonOutput, error_console, output_console
from protocol.errors import UserError
from sandbox.docker.engine import DockerEngine
from sandbox.egress_proxy.lazy_proxy import LazyEgressProxy
from sandbox.egress_proxy.options import EgressProxyOptions
from sandbox.egress_proxy.settings import EgressProxySettings
from sandbox.host_record import HostSettings, current_host
from sandbox.images import commands
from sandbox.images.commands import CommandReport, RequestedImage
from sandbox.images.image_names import NeededImage, images_of
from sandbox.images.registry_options import RegistryOptions
from sandbox.images.store import IMAGE_CONCURRENCY, IMAGE_QUOTA_GB, ImageSettings, ImageStore
from sandbox.networking.networks import BuildNetworkContainer, SandboxNetworks
from sandbox.tasks.container_files.build_context import load_build_context
from sandbox.tasks.dataset_catalog import CATALOG_FILE, load_dataset
from sandbox.tasks.formats.registry import TASK_MARKERS
from sandbox.tasks.task import Task
from sandbox.tasks.task_selection import filter_dataset

GIB = 1 << 30


class MakeImagesArguments(RegistryOptions):
    """Options of every command that builds or pulls images."""

    concurrency: AtLeastOne = IMAGE_CONCURRENCY
    """Concurrent builds and pulls."""
    budget_gb: Annotated[float, option("GiB"), Field(ge=0)] = IMAGE_QUOTA_GB
    """Maximum space of all images that longshore made; for it, older ones that nobody uses are removed. 0: no limit."""


class BuildImagesArguments(MakeImagesArguments, EgressProxyOptions):
    """Build the images of tasks, or of a folder with a Dockerfile."""

    tasks: Positional[Annotated[tuple[str, ...], option("LABEL|PATH ..."), Field(min_length=1)]]
    """Labels of data sets, task folders or folders of them, files of rows, or folders with a Dockerfile."""
    datasets: Annotated[Path, option("FILE")] = Path(CATALOG_FILE)
    """File that defines data set labels."""
    only: TaskPatterns = ()
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


class PullImagesArguments(MakeImagesArguments):
    """Pull images by name."""

    names: Positional[Annotated[tuple[str, ...], option("NAME ..."), Field(min_length=1)]]
    """Names of images."""
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
        for line in commands.report_lines(outcome):
            output_console().print(line)
    return EXIT_FAILED if outcome.get("failed") else EXIT_OK


async def _run(chosen: CommandArguments) -> CommandReport:
    proxy = chosen.proxy_settings(EgressProxySettings) if isinstance(chosen, EgressProxyOptions) else None
    async with _store(_image_settings(chosen), proxy or EgressProxySettings()) as (engine, store):
        match chosen:
            case SaveImagesArguments():
                return await commands.save(store, _requested(chosen, "prefetch"), chosen.output, error_console())
            case BuildImagesArguments():
                verb = "prefetch" if isinstance(chosen, PrefetchImagesArguments) else "build"
                return await commands.prefetch(store, _requested(chosen, verb), error_console())
            case PullImagesArguments():
                return await commands.prefetch(store, [_pulled(name) for name in chosen.names], error_console())
            case LoadImagesArguments():
                return await commands.load(store, chosen.archive)
            case ImportImageArguments():
                return await commands.import_root(store, chosen.archive, chosen.name)
            case PruneImagesArguments():
                return {"evicted": list(await store.prune(int(chosen.to_gb * GIB)))}
            case _:
                return await commands.list_images(engine, store)


def _image_settings(chosen: CommandArguments) -> ImageSettings:
    settings = ImageSettings(HostSettings.from_environment().home, current_host().base_image)
    if isinstance(chosen, MakeImagesArguments):
        settings = replace(
            settings,
            concurrency=chosen.concurrency,
            quota_bytes=int(chosen.budget_gb * GIB),
            allow_registries=chosen.allow_registry,
        )
    return settings


@asynccontextmanager
async def _store(
    settings: ImageSettings, proxy: EgressProxySettings
) -> AsyncGenerator[tuple[DockerEngine, ImageStore]]:
    host, opening = current_host(), LazyEgressProxy(settings.home / "egress_proxy", proxy)
    async with DockerEngine(host.docker_url) as engine, opening as opened:
        networks = await SandboxNetworks.open(engine, opened, BuildNetworkContainer(host.base_image, host.toolchain))
        yield engine, await ImageStore.open(engine, settings, networks.build_network)


def _requested(chosen: BuildImagesArguments, verb: str) -> list[RequestedImage]:
    """Return the images of the chosen tasks; ``build`` alone leaves out those that are pulled."""
    requested: list[RequestedImage] = []
    for name in chosen.tasks:
        path = Path(name)
        if (path / "Dockerfile").is_file() and not any((path / marker).exists() for marker in TASK_MARKERS):
            folder = path.resolve().name
            task = Task(id=folder, instruction="", build=load_build_context(path))
            requested.append(RequestedImage(NeededImage(folder, task), ("build", name)))
            continue
        found = filter_dataset(load_dataset(name, chosen.datasets), list(chosen.only))
        for problem in found.problems:
            error_console().print(str(problem))
        if not found.tasks:
            only = f" that --only {' '.join(chosen.only)} names" if chosen.only else ""
            raise UserError(f"{name} has no task{only} that can be used: see longshore tasks validate {name}")
        for task in found.tasks:
            again = (verb, name, "--only", task.id)
            requested += [RequestedImage(each, again) for each in images_of(task)]
    return [each for each in requested if each.needed.source.build or verb != "build"]


def _pulled(name: str) -> RequestedImage:
    return RequestedImage(NeededImage(name, Task(name, "", image=name)), ("pull", name))


COMMAND = Command("images", ImagesArguments, run)

if __name__ == "__main__":
    sys.exit(COMMAND.main())

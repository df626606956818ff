"""What ``longshore images`` does, and what it prints of it."""

from __future__ import annotations

import asyncio
import shlex
import time
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

from rich.console import Console

from protocol.cli.command import typed_command
from protocol.cli.formatting import format_bytes
from protocol.errors import UserError
from sandbox.docker.engine import DockerEngine
from sandbox.errors import ImageError
from sandbox.images import engine_calls
from sandbox.images.image_names import NeededImage, is_built_name, with_tag
from sandbox.images.prefetch import (
    ImageBudgetError,
    ImagePrefetch,
    ImageState,
    PrefetchedImage,
    prefetched_images,
)
from sandbox.images.prefetch_display import PrefetchDisplay, show_prefetch
from sandbox.images.store import ImageStore

CommandReport: TypeAlias = dict[str, Any]
_NAMED = 5
"""Number of missing images that an error names."""


class RequestedImage(NamedTuple):
    """An image that a command was asked for."""

    needed: NeededImage
    again: tuple[str, ...]
    """Words after ``longshore images`` that make this image alone."""


async def prefetch(store: ImageStore, requested: Sequence[RequestedImage], console: Console) -> CommandReport:
    """Make the images that are missing.  Raises UserError if budget or disk is full, DockerEngineError."""
    async with _prefetched(store, requested, console) as report:
        return report


async def save(
    store: ImageStore, requested: Sequence[RequestedImage], archive: Path, console: Console
) -> CommandReport:
    """Make the images that are missing, and write all to an archive.  Raises as :func:`prefetch`, and OSError."""
    if await asyncio.to_thread(archive.exists):
        raise UserError(f"{archive} exists already: nothing is overwritten, so name another file or remove it")
    if not await asyncio.to_thread(archive.parent.is_dir):
        raise UserError(f"cannot write {archive}: {archive.parent} is not a folder: make it, or name another file")
    async with _prefetched(store, requested, console) as report:
        names = sorted({each["image"] for each in report["images"]})
        if not names:
            raise UserError("there is no image to save: the tasks need none, or none could be made")
        await store.save(names, archive)
    return report | {"archive": str(archive), "archive_bytes": (await asyncio.to_thread(archive.stat)).st_size}


@asynccontextmanager
async def _prefetched(
    store: ImageStore, requested: Sequence[RequestedImage], console: Console
) -> AsyncGenerator[CommandReport]:
    """Make the images that are missing, evict others until the budget holds, and keep all until the block ends."""
    images = prefetched_images(each.needed for each in requested)
    display = PrefetchDisplay(images, console)
    run = ImagePrefetch(store, images, display.note_change)
    try:
        async with run:
            console.print(await _plan(store, images))
            async with show_prefetch(display, console):
                await run.make_missing()
            yield _report(store, requested, images) | {"evicted": list(await store.prune())}
    except ImageBudgetError as error:
        raise UserError(f"{error}: {_progress_so_far(images)}; {_ways_out(error)}") from error
    except asyncio.CancelledError:
        console.print(f"{_progress_so_far(images)}; `{typed_command('images')}` continues with the rest")
        raise


async def _plan(store: ImageStore, images: Sequence[PrefetchedImage]) -> str:
    """Return what there is to do, and the space for it."""
    existing, settings = sum(image.existed for image in images), store.settings
    plan = f"images: {len(images)}, of which {existing} exist; {format_bytes(await store.used_bytes())} used"
    if settings.quota_bytes:
        plan += f" of a budget of {format_bytes(settings.quota_bytes)}"
    free = await store.free_disk_bytes()
    return plan if free is None else f"{plan}, {format_bytes(free)} free on the disk"


def _report(store: ImageStore, requested: Sequence[RequestedImage], images: Sequence[PrefetchedImage]) -> CommandReport:
    again = {each.needed.needed_by: shlex.join(["longshore", "images", *each.again]) for each in requested}
    counts = store.statistics()
    return {
        "images": [
            {"task": name, "image": image.name}
            for image in images
            if image.state is ImageState.READY
            for name in image.needed_by
        ],
        "failed": [
            {"task": name, "why": str(image.error), "again": again[name]}
            for image in images
            if image.state is ImageState.FAILED
            for name in image.needed_by
        ],
        "existing": sum(image.existed for image in images),
        "built": counts.built,
        "pulled": counts.pulled,
    }


def _progress_so_far(images: Sequence[PrefetchedImage]) -> str:
    missing = [image.title for image in images if image.state is not ImageState.READY]
    more = f" and {len(missing) - _NAMED} more" if len(missing) > _NAMED else ""
    ready = f"{len(images) - len(missing)} of {len(images)} images are ready"
    return f"{ready}; missing: {', '.join(missing[:_NAMED])}{more}"


def _ways_out(error: ImageBudgetError) -> str:
    if error.disk:
        return "free space on it (longshore images prune --to-gb N), then run the command again: it makes the rest"
    return "run the command again with a larger --budget-gb: it makes the rest; or name fewer tasks with --only"


async def load(store: ImageStore, archive: Path) -> CommandReport:
    """Load an archive that :func:`save` has written.  Raises UserError, ImageError, DockerEngineError."""
    if not await asyncio.to_thread(archive.is_file):
        raise UserError(f"{archive} is not a file: name an archive that longshore images save has written")
    names = await store.load(archive)
    if not names:
        raise UserError(f"{archive} has no image with a name: name an archive that longshore images save has written")
    return {"images": [{"task": archive.name, "image": name} for name in names], "failed": []}


async def import_root(store: ImageStore, archive: Path, name: str) -> CommandReport:
    """Import a tar of a root file system.  Raises UserError, DockerEngineError."""
    if not await asyncio.to_thread(archive.is_file):
        raise UserError(f"{archive} is not a file: name a tar of a root file system, as `docker export` writes it")
    try:
        await store.import_archive(archive, name)
    except ImageError as error:
        return {"images": [], "failed": [{"task": name, "why": str(error)}]}
    return {"images": [{"task": archive.name, "image": with_tag(name)}], "failed": []}


async def list_images(engine: DockerEngine, store: ImageStore) -> CommandReport:
    """List longshore's images.  Raises DockerEngineError."""
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


def report_lines(outcome: CommandReport) -> list[str]:
    """Return a command's result for people."""
    lines = [f"{each['image']}  {each['task']}" for each in outcome.get("images", ())]
    by_reason = {each["why"]: each for each in reversed(outcome.get("failed", ()))}
    for why, first in reversed(by_reason.items()):
        tasks = ", ".join(each["task"] for each in outcome["failed"] if each["why"] == why)
        lines += [f"{tasks}: {why}", *([f"  again: {first['again']}"] if "again" in first else [])]
    if "built" in outcome:
        counts = f"{outcome['built']} built, {outcome['pulled']} pulled, {outcome['existing']} existed"
        lines.append(f"{counts}, {len(outcome['failed'])} failed")
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

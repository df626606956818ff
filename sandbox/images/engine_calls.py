"""Calls of the engine about images. Each call has a deadline, and an error quotes the engine."""

from __future__ import annotations

import asyncio
import http
import json
import re
import shutil
import time
from collections.abc import AsyncGenerator, AsyncIterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from ipaddress import ip_network
from pathlib import Path
from typing import Any, cast
from urllib.parse import quote, urlencode

import aiohttp

from protocol.truncation import HeadTailBuffer
from sandbox.docker.engine import DockerEngine
from sandbox.docker.retry import DockerEngineError, read_refusal
from sandbox.errors import BuildError, ImageError
from sandbox.images.build_context import pack_context
from sandbox.images.build_limits import BuildLimits
from sandbox.images.build_network import BuildNetworkAccess, fetch_added
from sandbox.images.engine_log import EngineLog, ReportProgress, ignore_progress
from sandbox.images.image_names import is_reference
from sandbox.images.quota import StoredImage
from sandbox.images.registry_credentials import NO_ACCESS, RegistryAccess
from sandbox.images.registry_hosts import NamedRegistries
from sandbox.tasks.container_files.add_sources import UnsupportedSyntaxError
from sandbox.tasks.container_files.buildkit_syntax import ClassicBuild, to_classic
from sandbox.tasks.task_containers import ImageBuild

_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}
"""Names of images' architectures, by those that an engine calls its machine's."""
_CALL_S = 60.0
_CHUNK_BYTES = 1 << 20
_NAMES_BYTES = 1 << 20
_LOADED = re.compile(r"Loaded image: (\S+)")


async def find_image_id(engine: DockerEngine, name: str) -> str:
    """Return the image's content id; empty when the engine does not have it."""
    async with _call(engine, "GET", f"{_path(name)}/json", f"look for the image {name}") as response:
        if response.status == http.HTTPStatus.NOT_FOUND:
            return ""
        return str((await _json(response))["Id"])


async def prepare_build(
    engine: DockerEngine, context: ImageBuild, name: str, network: BuildNetworkAccess
) -> ClassicBuild:
    """Return a build as the engine gets it, with the network's arguments and the contents of the URLs of ADD.  Raises
    BuildError."""
    context = replace(context, args={**network.args, **context.args})
    try:
        architecture = await _architecture(engine)
        classic = to_classic(context, architecture)
        if classic.unfetched:
            classic = to_classic(context, architecture, await fetch_added(classic.unfetched, network.fetch))
    except (UnsupportedSyntaxError, ImageError) as error:
        raise BuildError(f"could not build the image {name}: {error}") from error
    return classic


async def build_image(
    engine: DockerEngine,
    classic: ClassicBuild,
    name: str,
    *,
    network: str,
    timeout_s: float,
    limits: BuildLimits,
    access: RegistryAccess = NO_ACCESS,
    report: ReportProgress = ignore_progress,
) -> None:
    """Build and name an image; ``network`` and ``limits`` are those of its RUN steps.

    Raises BuildError with the step that failed and its last lines.

    Cancelling this ends the build: the engine stops when its caller disconnects.
    """
    what, build = f"build the image {name}", classic.build
    body = _packed(classic)
    query = {
        "t": name,
        "dockerfile": build.dockerfile,
        "target": build.target,
        "buildargs": json.dumps(build.args),
        "networkmode": network,
        "rm": "1",
        "forcerm": "1",
        **limits.query(podman=await engine.is_podman()),
    }
    log = EngineLog(report, access.trouble)
    async with _call(
        engine, "POST", "/build", what, query=query, body=body, headers=access.headers, timeout_s=timeout_s
    ) as response:
        await _follow(response, what, log, BuildError)


async def _architecture(engine: DockerEngine) -> str:
    """Return the architecture of the engine's machine, as images name it."""
    machine = str((await engine.info()).get("Architecture"))
    return _ARCHITECTURES.get(machine, machine)


async def pull_image(
    engine: DockerEngine,
    name: str,
    timeout_s: float,
    access: RegistryAccess = NO_ACCESS,
    report: ReportProgress = ignore_progress,
) -> None:
    """Pull an image.  Raises ImageError, which quotes the engine."""
    what, query, log = f"pull the image {name}", {"fromImage": name}, EngineLog(report, access.trouble)
    async with _call(
        engine, "POST", "/images/create", what, query=query, headers=access.headers, timeout_s=timeout_s
    ) as response:
        await _follow(response, what, log)


async def import_archive(engine: DockerEngine, archive: Path, name: str, timeout_s: float) -> None:
    """Import a tar of a root file system as a one-layer image.  Raises ImageError."""
    what = f"import {archive} as {name}"
    query = {"fromSrc": "-", "repo": name}
    body = _chunks(archive)
    async with _call(engine, "POST", "/images/create", what, query=query, body=body, timeout_s=timeout_s) as response:
        await _follow(response, what, EngineLog())


async def save_images(engine: DockerEngine, names: Sequence[str], archive: Path, timeout_s: float) -> None:
    """Write images with their names to an archive that an engine can load.  Raises ImageError, OSError."""
    what = f"save {len(names)} images to {archive}"
    query = urlencode([("names", name) for name in names])
    partial = archive.with_name(f"{archive.name}.part")
    try:
        async with _call(engine, "GET", f"/images/get?{query}", what, timeout_s=timeout_s) as response:
            if response.status >= http.HTTPStatus.BAD_REQUEST:
                raise ImageError(f"could not {what}: {read_refusal(await response.text())}")
            with await asyncio.to_thread(partial.open, "wb") as target:
                async for chunk in response.content.iter_chunked(_CHUNK_BYTES):
                    await asyncio.to_thread(target.write, chunk)
        await asyncio.to_thread(partial.rename, archive)
    finally:
        await asyncio.to_thread(partial.unlink, missing_ok=True)


async def load_images(engine: DockerEngine, archive: Path, timeout_s: float) -> tuple[str, ...]:
    """Load the images of an archive and return their names.  Raises ImageError."""
    what, log = f"load the images of {archive}", EngineLog(text=HeadTailBuffer(0, _NAMES_BYTES))
    async with _call(engine, "POST", "/images/load", what, body=_chunks(archive), timeout_s=timeout_s) as response:
        await _follow(response, what, log)
    return tuple(_short(name) for name in _LOADED.findall(log.text.text()))


async def list_images(engine: DockerEngine) -> tuple[StoredImage, ...]:
    """Return all images, including unnamed intermediate ones."""
    async with _call(engine, "GET", "/images/json", "list the images", query={"all": "1"}) as response:
        listed = cast("list[dict[str, Any]]", await _json(response))
    return tuple(
        StoredImage(
            each["Id"],
            each.get("ParentId") or "",
            int(each["Size"]),
            tuple(_short(name) for name in each.get("RepoTags") or () if name != "<none>:<none>"),
        )
        for each in listed
    )


def _short(name: str) -> str:
    """Return the name as Docker writes it; Podman adds the registry."""
    for prefix in ("docker.io/library/", "docker.io/", "localhost/"):
        name = name.removeprefix(prefix)
    return name


async def images_in_use(engine: DockerEngine) -> frozenset[str]:
    """Return the ids of the images of all containers, running or not."""
    async with _call(engine, "GET", "/containers/json", "list the containers", query={"all": "1"}) as response:
        return frozenset(str(each["ImageID"]) for each in await _json(response))


async def remove_image(engine: DockerEngine, name: str) -> bool:
    """Remove the name, and the layers that only it needs. Returns False if something still uses it."""
    async with _call(engine, "DELETE", _path(name), f"remove the image {name}") as response:
        if response.status == http.HTTPStatus.CONFLICT:
            return False
        if response.status != http.HTTPStatus.NOT_FOUND:
            await _json(response)
        return True


def _path(name: str) -> str:
    """Return the API path of an image.  Raises ImageError for an invalid name."""
    if not is_reference(name):
        raise ImageError(f"{name[:80]!r} is not a valid name of an image")
    return f"/images/{quote(name)}"


async def configured_registries(engine: DockerEngine) -> NamedRegistries:
    """Return the registries that the engine's own configuration names."""
    config = cast("dict[str, Any]", (await engine.info()).get("RegistryConfig") or {})
    networks = (ip_network(each) for each in config.get("InsecureRegistryCIDRs") or ())
    return NamedRegistries(frozenset(config.get("IndexConfigs") or ()), tuple(networks))


async def free_disk_bytes(engine: DockerEngine) -> int | None:
    """Return the free bytes of the disk with the engine's images; None if it is on another machine."""
    folder = Path(str((await engine.info()).get("DockerRootDir")))
    if not engine.url.startswith("unix://") or not await asyncio.to_thread(folder.exists):
        return None
    return (await asyncio.to_thread(shutil.disk_usage, folder)).free


async def find_engine_id(engine: DockerEngine) -> str:
    """Return the engine's id, which does not depend on its address."""
    async with _call(engine, "GET", "/info", "read the engine's id") as response:
        return str((await _json(response))["ID"])


@asynccontextmanager
async def _call(
    engine: DockerEngine,
    method: str,
    path: str,
    what: str,
    *,
    query: Mapping[str, str] | None = None,
    body: AsyncIterable[bytes | memoryview] | None = None,
    headers: Mapping[str, str] | None = None,
    timeout_s: float = _CALL_S,
) -> AsyncGenerator[aiohttp.ClientResponse]:
    docker = engine.docker
    timeout = aiohttp.ClientTimeout(total=timeout_s)
    kind = {"Content-Type": "application/x-tar"} if body is not None else {}
    sent = {**(headers or {}), **kind}
    try:
        async with docker.session.request(
            method, f"{docker.docker_host}{path}", params=query, data=body, headers=sent, timeout=timeout
        ) as response:
            yield response
    except TimeoutError as error:
        raise DockerEngineError(f"could not {what}: no answer within {timeout_s:g} s") from error
    except (OSError, aiohttp.ClientError) as error:
        raise DockerEngineError(f"could not {what}: {type(error).__name__} {error}") from error


async def _json(response: aiohttp.ClientResponse) -> Any:
    if response.status >= http.HTTPStatus.BAD_REQUEST:
        message = read_refusal(await response.text())
        raise DockerEngineError(f"{response.method} {response.url.path}: {message}", response.status)
    return await response.json(content_type=None)


async def _follow(
    response: aiohttp.ClientResponse, what: str, log: EngineLog, kind: type[ImageError] = ImageError
) -> None:
    """Read the engine's stream into ``log``.  Raises ``kind`` for the error in it, with what ``log`` has."""
    if response.status >= http.HTTPStatus.BAD_REQUEST:
        raise kind(f"could not {what}: {log.describe_error(read_refusal(await response.text()))}")
    async for entry in _entries(response):
        if "error" in entry:
            raise kind(f"could not {what}: {log.describe_error(str(entry['error']))}")
        log.feed(entry)


async def _entries(response: aiohttp.ClientResponse) -> AsyncGenerator[Mapping[str, Any]]:
    """Yield the JSON objects of the engine's stream, one a line."""
    rest = b""
    async for chunk in response.content.iter_any():
        *lines, rest = (rest + chunk).split(b"\n")
        for line in filter(bytes.strip, lines):
            yield json.loads(line)
    if rest.strip():
        yield json.loads(rest)


async def _packed(classic: ClassicBuild) -> AsyncGenerator[bytes | memoryview]:
    for piece in pack_context(classic.build, classic.modes, int(time.time())):
        yield piece


async def _chunks(path: Path) -> AsyncGenerator[bytes]:
    with await asyncio.to_thread(path.open, "rb") as source:
        while data := await asyncio.to_thread(source.read, _CHUNK_BYTES):
            yield data

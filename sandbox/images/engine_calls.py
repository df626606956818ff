"""Calls of the engine about images. Each call has a deadline, and an error quotes the engine."""

from __future__ import annotations

import asyncio
import http
import json
import re
from collections.abc import AsyncGenerator, AsyncIterable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast
from urllib.parse import quote, urlencode

import aiohttp

from protocol.truncation import HeadTailBuffer
from sandbox.docker.engine import DockerEngine
from sandbox.docker.retry import DockerEngineError
from sandbox.errors import BuildError, ImageError
from sandbox.images.build_context import pack_context
from sandbox.images.image_names import is_reference
from sandbox.images.quota import StoredImage
from sandbox.tasks.container_files.buildkit_syntax import UnsupportedSyntaxError, to_classic
from sandbox.tasks.task import ImageBuild

_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}
"""Names of images' architectures, by those that an engine calls its machine's."""
_CALL_S = 60.0
_CHUNK_BYTES = 1 << 20
_LOG_BYTES = 2000
_NAMES_BYTES = 1 << 20
_LOADED = re.compile(r"Loaded image: (\S+)")


async def find_image_id(engine: DockerEngine, name: str) -> str:
    """Return the image's content id; empty when the engine does not have it."""
    async with _call(engine, "GET", f"{_path(name)}/json", f"look for the image {name}") as response:
        if response.status == http.HTTPStatus.NOT_FOUND:
            return ""
        return str((await _json(response))["Id"])


async def build_image(
    engine: DockerEngine, context: ImageBuild, name: str, *, network: str, args: Mapping[str, str], timeout_s: float
) -> None:
    """Build and name an image; ``network`` is that of its RUN steps. Raises BuildError with the build's last lines.

    Cancelling this ends the build: the engine stops when its caller disconnects.
    """
    what = f"build the image {name}"
    try:
        classic = to_classic(context, await _architecture(engine))
    except UnsupportedSyntaxError as error:
        raise BuildError(f"could not {what}: only BuildKit knows {error}") from error
    body = await asyncio.to_thread(pack_context, classic.build, classic.modes)
    query = {
        "t": name,
        "dockerfile": context.dockerfile,
        "target": context.target,
        "buildargs": json.dumps({**args, **context.args}),
        "networkmode": network,
        "rm": "1",
        "forcerm": "1",
    }
    async with _call(engine, "POST", "/build", what, query=query, body=body, timeout_s=timeout_s) as response:
        await _progress(response, what, BuildError)


async def _architecture(engine: DockerEngine) -> str:
    """Return the architecture of the engine's machine, as images name it."""
    machine = str((await engine.info()).get("Architecture"))
    return _ARCHITECTURES.get(machine, machine)


async def pull_image(engine: DockerEngine, name: str, timeout_s: float) -> None:
    """Pull an image.  Raises ImageError, which quotes the engine."""
    what = f"pull the image {name}"
    query = {"fromImage": name}
    async with _call(engine, "POST", "/images/create", what, query=query, timeout_s=timeout_s) as response:
        await _progress(response, what)


async def import_archive(engine: DockerEngine, archive: Path, name: str, timeout_s: float) -> None:
    """Import a tar of a root file system as a one-layer image.  Raises ImageError."""
    what = f"import {archive} as {name}"
    query = {"fromSrc": "-", "repo": name}
    body = _chunks(archive)
    async with _call(engine, "POST", "/images/create", what, query=query, body=body, timeout_s=timeout_s) as response:
        await _progress(response, what)


async def save_images(engine: DockerEngine, names: Sequence[str], archive: Path, timeout_s: float) -> None:
    """Write images with their names to an archive that an engine can load.  Raises ImageError, OSError."""
    what = f"save {len(names)} images to {archive}"
    query = urlencode([("names", name) for name in names])
    partial = archive.with_name(f"{archive.name}.part")
    try:
        async with _call(engine, "GET", f"/images/get?{query}", what, timeout_s=timeout_s) as response:
            if response.status >= http.HTTPStatus.BAD_REQUEST:
                raise ImageError(f"could not {what}: {(await response.text()).strip()}")
            with await asyncio.to_thread(partial.open, "wb") as target:
                async for chunk in response.content.iter_chunked(_CHUNK_BYTES):
                    await asyncio.to_thread(target.write, chunk)
        await asyncio.to_thread(partial.rename, archive)
    finally:
        await asyncio.to_thread(partial.unlink, missing_ok=True)


async def load_images(engine: DockerEngine, archive: Path, timeout_s: float) -> tuple[str, ...]:
    """Load the images of an archive and return their names.  Raises ImageError."""
    what, log = f"load the images of {archive}", HeadTailBuffer(0, _NAMES_BYTES)
    async with _call(engine, "POST", "/images/load", what, body=_chunks(archive), timeout_s=timeout_s) as response:
        await _progress(response, what, log=log)
    return tuple(_short(name) for name in _LOADED.findall(log.text()))


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
    body: bytes | AsyncIterable[bytes] | None = None,
    timeout_s: float = _CALL_S,
) -> AsyncGenerator[aiohttp.ClientResponse]:
    docker = engine.docker
    timeout = aiohttp.ClientTimeout(total=timeout_s)
    headers = {"Content-Type": "application/x-tar"} if body is not None else {}
    try:
        async with docker.session.request(
            method, f"{docker.docker_host}{path}", params=query, data=body, headers=headers, timeout=timeout
        ) as response:
            yield response
    except TimeoutError as error:
        raise DockerEngineError(f"could not {what}: no answer within {timeout_s:g} s") from error
    except (OSError, aiohttp.ClientError) as error:
        raise DockerEngineError(f"could not {what}: {type(error).__name__} {error}") from error


async def _json(response: aiohttp.ClientResponse) -> Any:
    if response.status >= http.HTTPStatus.BAD_REQUEST:
        message = (await response.text()).strip()
        raise DockerEngineError(f"{response.method} {response.url.path}: {message}", response.status)
    return await response.json(content_type=None)


async def _progress(
    response: aiohttp.ClientResponse,
    what: str,
    kind: type[ImageError] = ImageError,
    log: HeadTailBuffer | None = None,
) -> None:
    """Read the engine's stream of JSON lines to its end.  Raises ``kind`` for the error in it.

    ``log`` gets what the engine says, and an error has what it keeps.
    """
    if response.status >= http.HTTPStatus.BAD_REQUEST:
        raise kind(f"could not {what}: {(await response.text()).strip()}")
    log = log or HeadTailBuffer(0, _LOG_BYTES)
    rest = b""
    async for chunk in response.content.iter_any():
        *lines, rest = (rest + chunk).split(b"\n")
        _take(lines, log, what, kind)
    _take([rest], log, what, kind)


def _take(lines: list[bytes], log: HeadTailBuffer, what: str, kind: type[ImageError]) -> None:
    for line in lines:
        if not line.strip():
            continue
        entry = json.loads(line)
        if "error" in entry:
            raise kind(f"could not {what}: {entry['error']}\n{log.text()}".rstrip())
        log.feed(str(entry.get("stream", "")).encode())


async def _chunks(path: Path) -> AsyncGenerator[bytes]:
    with await asyncio.to_thread(path.open, "rb") as source:
        while data := await asyncio.to_thread(source.read, _CHUNK_BYTES):
            yield data

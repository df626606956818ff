"""If these fail, the files of a build's ADDs fill the memory of the process that builds, or the engine gets others."""

from __future__ import annotations

import io
import tarfile
import tracemalloc
from pathlib import Path

import pytest
from aiohttp import web
from yarl import URL

from sandbox.egress_proxy.download import download
from sandbox.egress_proxy.file_cache import FileCache
from sandbox.egress_proxy.rules import AllowList
from sandbox.egress_proxy.upstream import UpstreamClient, UpstreamError
from sandbox.images.build_context import pack_context
from sandbox.images.build_network import MOST_ADDED_BYTES, fetch_added
from sandbox.tasks.container_files.buildkit_syntax import to_classic
from sandbox.tasks.task_containers import ImageBuild
from tests.support.network.aiohttp_servers import serve_on_loopback


def test_a_context_is_packed_without_a_copy_of_its_files() -> None:
    files = {"a": b"a" * (8 << 20), "b/c": b"", "b/empty/": b"", f"d/{'e' * 200}": b"e"}
    build = ImageBuild(files, executable=frozenset({"a"}), modified_s={"a": 1_000_000_000})
    tracemalloc.start()
    size = sum(map(len, pack_context(build, {"b/c": 0o600, "d": 0o700}, 1_800_000_000)))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert size > 8 << 20 > 8 * peak
    packed = b"".join(pack_context(build, {"b/c": 0o600, "d": 0o700}, 1_800_000_000))
    with tarfile.open(fileobj=io.BytesIO(packed)) as tar:
        found = {f"{entry.name}{'/' * entry.isdir()}": (tar.extractfile(entry) or io.BytesIO()).read() for entry in tar}
        modes = [entry.mode for entry in tar]
        times_s = [entry.mtime for entry in tar]
    assert (found, modes) == ({**files, "d/": b""}, [0o700, 0o755, 0o600, 0o755, 0o644])
    assert times_s == [1_800_000_000, 1_000_000_000, *[1_800_000_000] * 3]


async def test_the_urls_of_a_build_have_a_bound_together_and_are_fetched_once() -> None:
    asked: list[tuple[str, int]] = []

    async def fetch(url: str, most_bytes: int) -> bytes:
        asked.append((url, most_bytes))
        return b"12345"

    assert await fetch_added(["a", "b", "a"], fetch) == {"a": b"12345", "b": b"12345"}
    assert asked == [("a", MOST_ADDED_BYTES), ("b", MOST_ADDED_BYTES - 5)]


def test_a_url_that_is_added_twice_is_one_file_of_the_context() -> None:
    build = ImageBuild({"Dockerfile": b"FROM a\nADD https://a.example/b /c\nADD https://a.example/b /d\n"})
    assert len(to_classic(build, "amd64", {"https://a.example/b": b"b"}).build.files) == 2


async def test_a_download_ends_at_its_bound(tmp_path: Path) -> None:
    async def answer(request: web.Request) -> web.Response:
        return web.Response(body=b"12345")

    app = web.Application()
    app.router.add_get("/x", answer)
    async with (
        serve_on_loopback(app, shutdown_timeout_s=0.1) as port,
        UpstreamClient(FileCache(tmp_path, 1 << 20)) as upstream,
    ):
        url, own = URL(f"http://127.0.0.1:{port}/x"), (f"127.0.0.1:{port}",)
        assert await download(upstream, AllowList(own, own, everywhere=False), url, 5) == b"12345"
        with pytest.raises(UpstreamError, match="larger than"):
            await download(upstream, AllowList(own, own, everywhere=False), url, 4)

"""If these fail, 512 sandboxes fetch a package 512 times, or a sandbox reaches a host that its task does not allow.

Servers on this machine's loopback; the sandboxes are network namespaces that the tests make.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import shutil
from collections import Counter
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from aiohttp import web

from sandbox.docker.retry import DockerEngineError
from sandbox.egress_proxy.proxy import EgressProxy
from sandbox.egress_proxy.settings import PROXY_ADDRESS, EgressProxySettings
from tests.support.network.aiohttp_servers import serve_on_loopback

SANDBOXES = 12
PACKAGE = bytes(range(256)) * 8000


@pytest.fixture(autouse=True)
async def _can_make_namespaces() -> None:
    if any(shutil.which(each) is None for each in ("unshare", "nsenter", "ip", "curl")):
        pytest.skip("needs unshare, nsenter, ip and curl")
    probe = await asyncio.create_subprocess_exec("unshare", "--net", "true", stderr=asyncio.subprocess.DEVNULL)
    if await probe.wait():
        pytest.skip("this user may not make network namespaces")


@asynccontextmanager
async def namespace() -> AsyncGenerator[int]:
    """Start a process in its own network namespace with its loopback up."""
    script = "ip link set lo up && echo ready && exec sleep 600"
    process = await asyncio.create_subprocess_exec(
        "unshare", "--net", "sh", "-c", script, stdout=asyncio.subprocess.PIPE
    )
    assert process.stdout is not None
    try:
        assert await process.stdout.readline() == b"ready\n"
        yield process.pid
    finally:
        process.kill()
        await process.wait()


class Index:
    """A package index that counts requests by path."""

    def __init__(self) -> None:
        self.requests: Counter[str] = Counter()
        self.port = 0
        self.let_go = asyncio.Event()
        self.let_go.set()
        self.file_asked = asyncio.Event()

    @property
    def host(self) -> str:
        return f"127.0.0.1:{self.port}"

    async def answer(self, request: web.Request) -> web.StreamResponse:
        self.requests[request.path] += 1
        if request.path == "/simple/a/":
            links = f'<a href="http://{self.host}/files/a-1-py3-none-any.whl">a</a>'
            return web.Response(text=links, content_type="text/html")
        if request.path == "/moved":
            raise web.HTTPFound(f"http://{self.host}/simple/a/")
        if request.path == "/echo":
            return web.Response(body=await request.read(), headers={"Cache-Control": "no-store"})
        if request.path.startswith("/whole"):
            return web.Response(body=PACKAGE)
        self.file_asked.set()
        response = web.StreamResponse()
        await response.prepare(request)
        await response.write(PACKAGE[:1000])
        await self.let_go.wait()
        if request.path.startswith("/cut"):
            assert request.transport is not None
            request.transport.close()
        else:
            await response.write(PACKAGE[1000:])
        return response


@asynccontextmanager
async def index() -> AsyncGenerator[Index]:
    served = Index()
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", served.answer)
    async with serve_on_loopback(app, shutdown_timeout_s=0.1) as served.port:
        yield served


async def curl(pid: int, *arguments: str) -> tuple[int, bytes]:
    """Return curl's exit code and body inside the namespace."""
    process = await asyncio.create_subprocess_exec(
        "nsenter", "--target", str(pid), "--net", "curl", "--silent", "--max-time", "60", *arguments,
        stdout=asyncio.subprocess.PIPE,
    )  # fmt: skip
    out, _ = await process.communicate()
    return await process.wait(), out


def make_proxy(tmp_path: Path, *hosts: str, most_bytes: int = 1 << 30) -> EgressProxy:
    """Return a proxy whose operator allows ``hosts``."""
    settings = EgressProxySettings(proxy_gb=most_bytes / (1 << 30), allow_hosts=hosts)
    return EgressProxy(tmp_path / "egress_proxy", settings)


async def test_a_package_is_fetched_once_for_all_sandboxes_even_while_it_arrives(tmp_path: Path):
    async with index() as served, make_proxy(tmp_path, served.host) as opened, contextlib.AsyncExitStack() as stack:
        served.let_go.clear()
        pids = [await stack.enter_async_context(namespace()) for _ in range(SANDBOXES)]
        for pid in pids:
            await stack.enter_async_context(opened.opened(pid, ()))

        async def install(pid: int) -> bytes:
            _, page = await curl(pid, f"{PROXY_ADDRESS}/~/http/{served.host}/simple/a/")
            link = page.decode().split('"')[1]
            assert link == f"{PROXY_ADDRESS}/~/http/{served.host}/files/a-1-py3-none-any.whl"
            return (await curl(pid, link))[1]

        async with asyncio.TaskGroup() as group:
            installs = [group.create_task(install(pid)) for pid in pids]
            await served.file_asked.wait()
            served.let_go.set()
        assert all(each.result() == PACKAGE for each in installs)
        assert served.requests == {"/simple/a/": 1, "/files/a-1-py3-none-any.whl": 1}
    async with make_proxy(tmp_path) as again, namespace() as pid, again.opened(pid, ("127.0.0.1:1",)):
        assert again.statistics().fetched == 0, "nothing to fetch: the file is kept"


async def test_a_disallowed_request_is_refused_counted_and_never_forwarded(tmp_path: Path):
    async with index() as served, make_proxy(tmp_path) as opened, namespace() as pid:
        async with opened.opened(pid, ("files.example", "localhost", served.host)):
            for url, why in (
                (f"http://{served.host}/echo", b"a loopback address"),
                (f"http://[::ffff:127.0.0.1]:{served.port}/echo", b"not among the hosts"),
                (f"http://localhost:{served.port}/echo", b"refused for its port: this task allows localhost at 80"),
                ("http://127.0.0.1/", b"refused for its port"),
                ("http://localhost/", b"a loopback address"),
            ):
                code, output = await curl(pid, "--proxy", PROXY_ADDRESS, url)
                assert (code, why in output) == (0, True), output
            code, _ = await curl(pid, "--proxy", PROXY_ADDRESS, f"https://{served.host}/")
            assert code != 0
            code, output = await curl(pid, f"{PROXY_ADDRESS}/etc/passwd")
            assert b"names no server" in output
        assert not served.requests
        assert sum(opened.statistics().refused.values()) == 7


@pytest.mark.parametrize("host", ["127.0.0.1", "127.1", "0x7f000001", "0", "[::ffff:7f00:1]", "[::]"])
async def test_network_full_without_a_bridge_never_leads_to_this_machine(tmp_path: Path, host: str):
    async with index() as served, make_proxy(tmp_path) as opened, namespace() as pid:
        async with opened.opened(pid, (), everywhere=True):
            _, output = await curl(pid, "--proxy", PROXY_ADDRESS, f"http://{host}:{served.port}/echo")
            assert b"leads to" in output
            code, _ = await curl(pid, "--proxytunnel", "--proxy", PROXY_ADDRESS, f"http://{host}:{served.port}/echo")
            assert code != 0
        assert not served.requests


async def test_nothing_is_reachable_before_the_phase_and_after_it(tmp_path: Path):
    async with index() as served, make_proxy(tmp_path, served.host) as opened, namespace() as pid:
        url = f"{PROXY_ADDRESS}/~/http/{served.host}/simple/a/"
        assert (await curl(pid, url))[0] == 7
        async with opened.opened(pid, ()):
            assert (await curl(pid, url))[0] == 0
        assert (await curl(pid, url))[0] == 7
        async with opened.opened(pid, ("files.example:1",)):
            _, output = await curl(pid, f"{PROXY_ADDRESS}/~/http/files.example/")
            assert b"refused for its port: this task allows files.example at 1\n" in output


async def test_the_proxy_does_not_listen_in_a_process_that_fails_the_confirmation(tmp_path: Path):
    async def confirm() -> None:
        assert (await curl(pid, f"{PROXY_ADDRESS}/"))[0] == 7, "it listens before anybody has confirmed"
        raise DockerEngineError("another process")

    async with make_proxy(tmp_path) as opened, namespace() as pid:
        with pytest.raises(DockerEngineError, match="another process"):
            async with opened.opened(pid, (), confirm=confirm):
                pytest.fail("opened")
        assert (await curl(pid, f"{PROXY_ADDRESS}/"))[0] == 7


async def test_personal_requests_are_forwarded_and_never_cached(tmp_path: Path):
    async with (
        index() as served,
        make_proxy(tmp_path, served.host) as opened,
        namespace() as pid,
        opened.opened(pid, ()),
    ):
        for text in ("one", "two"):
            body = await curl(pid, "--proxy", PROXY_ADDRESS, "--data", text, f"http://{served.host}/echo")
            assert body == (0, text.encode())
        for secret in ("a", "b"):
            await curl(pid, "--proxy", PROXY_ADDRESS, "--user", f"me:{secret}", f"http://{served.host}/simple/a/")
        assert served.requests == {"/echo": 2, "/simple/a/": 2}
        code, moved = await curl(pid, "--location", f"{PROXY_ADDRESS}/~/http/{served.host}/moved")
        assert (code, b"a-1-py3" in moved) == (0, True)
        assert opened.statistics().fetched == 1


async def test_a_tunnel_carries_both_ways(tmp_path: Path):
    async with (
        index() as served,
        make_proxy(tmp_path, served.host) as opened,
        namespace() as pid,
        opened.opened(pid, ()),
    ):
        got = await curl(pid, "--proxytunnel", "--proxy", PROXY_ADDRESS, "--data", "x", f"http://{served.host}/echo")
        assert got == (0, b"x")


async def test_an_incomplete_download_is_an_error_for_its_readers_and_is_not_cached(tmp_path: Path):
    async with (
        index() as served,
        make_proxy(tmp_path, served.host) as opened,
        namespace() as pid,
        opened.opened(pid, ()),
    ):
        for _ in range(2):
            code, _ = await curl(pid, "--proxy", PROXY_ADDRESS, f"http://{served.host}/cut.whl")
            assert code != 0, "a short file passed for a whole one"
        assert served.requests["/cut.whl"] == 2
        assert not list((tmp_path / "egress_proxy").glob("*.body"))


async def test_a_malformed_request_gets_an_error_and_ends_only_that_connection(tmp_path: Path):
    async with (
        index() as served,
        make_proxy(tmp_path, served.host) as opened,
        namespace() as pid,
        opened.opened(pid, ()),
    ):
        for nonsense in ("\\0\\1\\2", "GET / HTTP/9.9\\r\\n\\r\\n", "CONNECT x HTTP/1.1\\r\\nHost: x\\r\\n\\r\\n"):
            script = f"exec 3<>/dev/tcp/127.0.0.1/3128; printf '{nonsense}' >&3; timeout 20 cat <&3"
            process = await asyncio.create_subprocess_exec(
                "nsenter", "--target", str(pid), "--net", "bash", "-c", script, stdout=asyncio.subprocess.PIPE
            )
            output, _ = await process.communicate()
            assert re.match(rb"HTTP/1\.1 4\d\d .*longshore egress proxy: ", output, re.DOTALL), (nonsense, output)
        assert (await curl(pid, f"{PROXY_ADDRESS}/~/http/{served.host}/simple/a/"))[0] == 0


async def test_the_cache_stays_within_its_size_limit(tmp_path: Path):
    most = int(len(PACKAGE) * 2.5)
    async with index() as served, make_proxy(tmp_path, served.host, most_bytes=most) as opened, namespace() as pid:
        async with opened.opened(pid, ()):
            for n in range(4):
                await curl(pid, "--proxy", PROXY_ADDRESS, f"http://{served.host}/{n}.whl")
        assert sum(each.stat().st_size for each in (tmp_path / "egress_proxy").glob("*.body")) <= most


@pytest.mark.parametrize("path", ["whole.whl", "in-pieces.whl"])
async def test_a_file_that_is_too_large_to_keep_arrives_whole_and_is_not_kept(tmp_path: Path, path: str):
    async with (
        index() as served,
        make_proxy(tmp_path, served.host, most_bytes=len(PACKAGE)) as opened,
        namespace() as pid,
    ):
        async with opened.opened(pid, ()):
            for times in (1, 2):
                got = await curl(pid, "--proxy", PROXY_ADDRESS, f"http://{served.host}/{path}")
                assert got == (0, PACKAGE)
                assert served.requests[f"/{path}"] == times
        assert not list((tmp_path / "egress_proxy").iterdir())

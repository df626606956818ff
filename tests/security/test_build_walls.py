"""If these fail, a task's Dockerfile makes the engine read servers of its host, or its RUN steps exhaust the host."""

from __future__ import annotations

import hashlib
import io
import json
import os
import tarfile
from collections.abc import AsyncGenerator
from dataclasses import replace

import pytest
from aiohttp import web

from sandbox.egress_proxy.settings import EgressProxySettings
from sandbox.errors import BuildError
from sandbox.host_record import SandboxHost
from sandbox.images import engine_calls
from sandbox.pool.sandbox_pool import PoolSettings, SandboxPool
from sandbox.pool.settings import ContainerSettings
from sandbox.tasks.container_files.add_sources import UnsupportedSyntaxError
from sandbox.tasks.container_files.buildkit_syntax import ClassicBuild, to_classic
from sandbox.tasks.task import Task
from sandbox.tasks.task_containers import ImageBuild
from sandbox.tasks.task_network import NetworkMode, TaskNetwork
from tests.support.network.aiohttp_servers import serve_on_loopback

URL = "http://127.0.0.1:9/x"
REMOTE = [
    f"ADD {URL} /y", f"add {URL} /y", f'ADD ["{URL}", "/y"]', f'ADD "{URL}" /y', "ADD ht\\tp://127.0.0.1:9/x /y",
    f"ARG U={URL}\nADD $U /y", f"ENV U={URL}\nADD ${{U}} /y", "ARG H=http:\nADD ${H}//127.0.0.1:9/x /y",
    f"ADD --chown=1 {URL} /y", f"ADD --chmod=755 {URL} /y", f"ADD a {URL} /y/", f"ADD \\\n {URL} \\\n /y",
    "ADD ${NONE:-http:}//127.0.0.1:9/x /y", f"ENV S={URL}\nARG S=a\nADD $S /y", f"ARG S=a\nARG A=1 S={URL}\nADD $S /y",
    f"ENV S={URL}\nFROM one\nARG S=a\nADD $S /y",
    *(f"RUN true # \\{blank}\nADD {URL} /y" for blank in "\v\f\x1c\x85\u2028"),
]  # fmt: skip
HIDDEN = [
    f"ONBUILD ADD {URL} /y", "onbuild add $U /y", 'ONBUILD ADD http:"//127.0.0.1:9/x" /y', "ONBUILD\vADD a:b /y",
    f'ADD ["{URL}", "/y\udcff"]', "ARG HTTP_PROXY\nADD ${HTTP_PROXY}@127.0.0.1:9/x /y", f"ADD {URL}/$V /y",
    f"ARG V=1.2\nADD {URL}/${{V%.*}} /y", f"ADD {URL}'' /y", f'ADD --chown="1 {URL} " /y', f'ADD ["{URL}", /y]',
    f"ENV U={URL}/$V\nADD $U:x /y", "ADD git@127.0.0.1:a /y", f"ADD {URL}.git#main /y", "ADD ssh://127.0.0.1/a /y",
    "ADD http://127.0.0.1:9/.. /y/", "ADD http://127.0.0.1:9/ /y/", "ADD http://127.0.0.1:9/a%24b /y", f"ADD {URL}",
    f"ADD --checksum=sha256:1 {URL} /y", "ADD FTP://127.0.0.1/x /y",
]  # fmt: skip
ONLY_THE_ENGINE_KNOWS = ["ADD $U /y", "ADD ${U}//x /y", "ADD ${H#x}//127.0.0.1 /y", "ADD a/$U /y", "ADD 'a' $$ /y/"]


def classic(lines: str, fetched: dict[str, bytes] | None = None) -> ClassicBuild:
    text = f"FROM a AS one\n{lines}\n".encode(errors="surrogateescape")
    return to_classic(ImageBuild({"Dockerfile": text, "a": b""}), "amd64", fetched)


@pytest.mark.parametrize("lines", REMOTE)
def test_a_url_of_add_never_reaches_the_engine(lines: str):
    try:
        assert classic(lines).unfetched == (URL,)
    except UnsupportedSyntaxError:
        return  # refused at load
    done = classic(lines, {URL: b"content"})
    assert not done.unfetched
    assert b"://127" not in done.build.files["Dockerfile"].rpartition(b"COPY")[2]
    (path,) = done.modes
    assert done.build.files[path] == b"content"
    assert path.endswith("/x")
    assert done.modes[path] == (0o755 if "chmod" in lines else 0o600)


@pytest.mark.parametrize("lines", HIDDEN)
def test_what_may_become_a_url_only_in_the_engine_is_refused(lines: str):
    with pytest.raises(UnsupportedSyntaxError):
        classic(lines)


@pytest.mark.parametrize(
    "text",
    [
        "# escape=`\nFROM a\nADD ht`tp://127.0.0.1:9/x /y",
        f"#\tEscape = `\nFROM a\nADD `\n{URL} /y",
        f"# syntax=docker/dockerfile:1\n# escape=`\nFROM a\nA`\n# why\nDD {URL} /y",
    ],
)
def test_a_backtick_hides_no_url(text: str):
    try:
        assert to_classic(ImageBuild({"Dockerfile": text.encode()}), "amd64").unfetched == (URL,)
    except UnsupportedSyntaxError:
        assert "ht`tp" in text


@pytest.mark.parametrize(
    "name",
    [
        "Dockerfile.in",
        "a/b.in",
        '["Dockerfile.in"]',
        '\n["http:\\u002f\\u002f127.0.0.1:9"]',
        "null",
        "https://a.example/x",
    ],
)
def test_a_file_that_podman_would_not_read_as_it_is_is_refused(name: str):
    """It takes such names for a list, an address, or a text for the preprocessor of C."""
    with pytest.raises(UnsupportedSyntaxError, match="rename it"):
        to_classic(ImageBuild({name: b"FROM a\n"}, dockerfile=name), "amd64")


@pytest.mark.parametrize("line", ONLY_THE_ENGINE_KNOWS)
def test_an_add_of_a_path_that_only_the_engine_knows_is_a_copy_unless_it_may_unpack(line: str):
    copy = classic(line).build.files["Dockerfile"].decode().splitlines()[1]
    assert copy == f"COPY {json.dumps(line.split()[1:])}"
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as tar:
        tar.addfile(tarfile.TarInfo("a"))
    context = {"Dockerfile": f"FROM a\n{line}\n".encode(), "a.tgz": packed.getvalue()}
    with pytest.raises(UnsupportedSyntaxError, match="would unpack an archive"):
        to_classic(ImageBuild(context), "amd64")


@pytest.mark.parametrize(
    ("lines", "written"),
    [
        ("ADD a /y", "ADD a /y"),
        ("ADD", "ADD"),
        ("ADD a", "ADD a"),
        ("COPY $U /y", "COPY $U /y"),
        ("ADD a:b* /y", 'ADD ["a:b*", "/y"]'),
        ("ENV S=a\nADD $S /y", 'ADD ["a", "/y"]'),
        ("ADD --chown=1:2 a /y$U", 'ADD --chown=1:2 ["a", "/y$U"]'),
        ('ADD ["a b", "/y"]', 'ADD ["a b", "/y"]'),
        ("ADD \\\n  # why\n  a \\\n  /y", "ADD   a   /y"),
    ],
)
def test_an_add_of_a_file_of_the_context_has_a_path_that_is_no_variable(lines: str, written: str):
    assert classic(lines).build.files["Dockerfile"].decode().splitlines()[-1] == written


def test_what_add_fetches_has_docker_s_name_and_the_checksum_that_is_asked_for():
    url, data = "https://a.example/b%20c.txt", b"content"
    wanted = hashlib.sha256(data).hexdigest()
    (path,) = classic(f"ADD --checksum=sha256:{wanted} {url} /d/", {url: data}).modes
    assert path.endswith("/b c.txt")
    with pytest.raises(UnsupportedSyntaxError, match="checksum"):
        classic(f"ADD --checksum=sha256:{wanted} {url} /d/", {url: b"other"})


class Asked:
    """A server of the host's loopback that counts its requests."""

    def __init__(self) -> None:
        self.count, self.port = 0, 0

    async def answer(self, request: web.Request) -> web.Response:
        self.count += 1
        if request.path == "/moved":
            raise web.HTTPFound(f"http://localhost:{self.port}/secret")
        return web.Response(body=b"secret")


@pytest.fixture
async def asked() -> AsyncGenerator[Asked]:
    served, app = Asked(), web.Application()
    app.router.add_get("/{path:.*}", served.answer)
    async with serve_on_loopback(app, shutdown_timeout_s=0.1) as served.port:
        yield served


def built(host: SandboxHost, lines: str, mode: NetworkMode, *hosts: str) -> Task:
    dockerfile = f"FROM {host.base_image}\nLABEL a={os.getpid()}\n{lines}\n"
    network = TaskNetwork(build=mode, allowed_hosts=hosts)
    return Task("walls", "", build=ImageBuild({"Dockerfile": dockerfile.encode()}), network=network)


@pytest.mark.slow
@pytest.mark.docker
async def test_a_build_reads_no_server_of_the_host_unless_the_operator_allows_it(
    docker_engine: SandboxHost, asked: Asked
):
    settings = PoolSettings("test-walls", "test", 1)
    own = f"127.0.0.1:{asked.port}"
    async with SandboxPool(settings, docker_engine) as pool:
        for mode in NetworkMode:
            for host in (own, f"localhost:{asked.port}"):
                task = built(docker_engine, f"ADD http://{host}/x /x", mode, own, f"localhost:{asked.port}")
                with pytest.raises(BuildError, match=r"this build has none|a loopback address"):
                    async with pool.images.reserve(task):
                        pytest.fail("built")
    assert not asked.count
    allowing = replace(settings, containers=ContainerSettings(**EgressProxySettings(allow_hosts=(own,)).model_dump()))
    async with SandboxPool(allowing, docker_engine) as pool:
        moved = built(docker_engine, f"ADD http://{own}/moved /x", NetworkMode.PROXY)
        with pytest.raises(BuildError, match="not among the hosts"):
            async with pool.images.reserve(moved):
                pytest.fail("a redirect led on")
        run = 'RUN [ "$(cat /x)" = secret ] && [ "$(stat -c %a /x)" = 600 ]'
        async with pool.images.reserve(
            built(docker_engine, f"ADD http://{own}/x /x\n{run}", NetworkMode.PROXY)
        ) as image:
            assert asked.count == 2
        await engine_calls.remove_image(pool.engine, image)


HIDING = [
    "ENV S={url}\nARG S=local\nADD $S /y", "ARG S=local\nARG A=1 S={url}\nADD $S /y", "RUN true # \\\v\nADD {url} /y",
    'ONBUILD ADD http:"//{own}/x" /y\nFROM one', "ARG HTTP_PROXY\nADD ${{HTTP_PROXY}}@{own}/x /y",
    'ADD ["{url}", "/y\udcff"]', "ENV S={url}\nFROM one\nARG S=local\nADD $S /y",
]  # fmt: skip


@pytest.mark.slow
@pytest.mark.docker
async def test_no_spelling_of_an_add_makes_the_engine_fetch(docker_engine: SandboxHost, asked: Asked):
    own = f"127.0.0.1:{asked.port}"
    from_base = f"FROM {docker_engine.base_image} AS one\n"
    texts = [from_base + lines.format(url=f"http://{own}/x", own=own) for lines in HIDING]
    texts.append(f"# escape=`\n{from_base}ADD ht`tp://{own}/x /y")
    async with SandboxPool(PoolSettings("test-walls", "test", 1), docker_engine) as pool:
        for text in texts:
            files = {"Dockerfile": text.encode(errors="surrogateescape"), "local": b"l"}
            with pytest.raises(BuildError, match=r"ADD|a loopback address"):
                async with pool.images.reserve(Task("walls", "", build=ImageBuild(files))):
                    pytest.fail("built")
    assert not asked.count


@pytest.mark.slow
@pytest.mark.docker
async def test_the_steps_of_a_build_have_limits(docker_engine: SandboxHost):
    limits = "cat /sys/fs/cgroup/memory.max /sys/fs/cgroup/memory/memory.limit_in_bytes 2>/dev/null | head -n 1"
    quota = "cat /sys/fs/cgroup/cpu.max /sys/fs/cgroup/cpu/cpu.cfs_quota_us 2>/dev/null | head -n 1 | cut -d' ' -f1"
    run = f'RUN [ "$({limits})" = {5000 << 20} ] && [ "$({quota})" = 200000 ] && [ "$(ulimit -c)" = 0 ]'
    task = replace(built(docker_engine, run, NetworkMode.NONE), memory_mb=5000, cpus=1.0)
    async with SandboxPool(PoolSettings("test-walls", "test", 1), docker_engine) as pool:
        async with pool.images.reserve(task) as image:
            assert image
        await engine_calls.remove_image(pool.engine, image)

"""If these fail, a task with a database or a network is refused, runs without it, or leaves containers and networks."""

from __future__ import annotations

import asyncio
import dataclasses
import itertools
import json
import os
import socket
from collections.abc import AsyncGenerator, Awaitable
from contextlib import asynccontextmanager
from typing import Any

import pytest
import pytest_asyncio

from protocol.errors import UserError
from sandbox.docker.engine import DockerEngine
from sandbox.docker.inventory import DockerInventory
from sandbox.docker.labels import NETWORK_LABEL, POOL_LABEL, RUN_LABEL, SERVICE_LABEL
from sandbox.docker.leaks import inventory_of_strangers, inventory_where
from sandbox.docker.network.private_networks import MAX_SERVICES
from sandbox.docker.network.proxy_address import PROXY_HOST, PROXY_PORT
from sandbox.errors import SandboxDestroyed, SandboxStartError, TaskFault
from sandbox.grading.grader import grade_sandbox
from sandbox.host_record import SandboxHost
from sandbox.networking.services import adopt_services
from sandbox.pool.sandbox_pool import PoolSettings, SandboxPool
from sandbox.pool.settings import ContainerSettings
from sandbox.process_limits import ProcessLimit
from sandbox.session.sandbox_session import SandboxSession
from sandbox.tasks.task import Task
from sandbox.tasks.task_containers import ImageBuild, ServiceCondition, SharedFolder, TaskService
from sandbox.tasks.task_grading import GradingLevel
from sandbox.tasks.task_network import NetworkMode, TaskNetwork
from sandbox.validation.proofs import ProofVerdict, pool_proof_environment, prove_tasks
from tests.support.sandbox.docker_requests import on_docker_request

pytestmark = [pytest.mark.first_case, pytest.mark.docker, pytest.mark.asyncio(loop_scope="session")]
S = 60.0
BUSYBOX = "/.sbx/busybox"
OWN = "own.example"
"""A name that leads to this machine."""
NONE, PROXY, FULL = NetworkMode.NONE, NetworkMode.PROXY, NetworkMode.FULL
WEB = TaskService("web", command=("/.sbx/busybox", "httpd", "-f", "-p", "8000", "-h", "/etc"), healthcheck="true")
DEAD = dataclasses.replace(WEB, name="dead", command=("/.sbx/busybox", "false"), healthcheck="false")
ASK_WEB = (
    "(exec 3<>/dev/tcp/web/8000; printf 'GET /hostname HTTP/1.0\\r\\n\\r\\n' >&3; timeout 10 cat <&3) 2>&1 | tail -n 1"
)
TASK = Task(
    id="around",
    instruction="",
    services=(WEB,),
    run_tests=f"#!/bin/bash\necho short test summary info; [[ $({ASK_WEB}) == web ]] && echo PASSED web\n",
)


def through_proxy(url: str) -> str:
    """Return a command that prints the proxy's answer, or the error."""
    ask = f"exec 3<>/dev/tcp/{PROXY_HOST}/{PROXY_PORT}; printf 'GET {url} HTTP/1.0\\r\\n\\r\\n' >&3; timeout 10 cat <&3"
    return f"({ask}) 2>&1"


@pytest_asyncio.fixture(loop_scope="session")
async def before(engine: DockerEngine, pool: SandboxPool) -> AsyncGenerator[DockerInventory]:
    """Yield the inventory, and check at the end that nothing has been added."""
    there, mine = await engine.inventory(), {POOL_LABEL: pool.settings.name}
    yield there
    after = await engine.inventory()
    assert after.networks <= there.networks
    assert after.volumes <= there.volumes
    async with asyncio.timeout(S):
        while not {each.id for each in await engine.containers(mine)} <= there.containers:  # noqa: ASYNC110  the daemon tells nobody
            await asyncio.sleep(0.05)


@asynccontextmanager
async def answering(text: bytes) -> AsyncGenerator[str]:
    """Yield the address of a web server on this machine."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%s" % (len(text), text))
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1") as server:
        yield f"127.0.0.1:{server.sockets[0].getsockname()[1]}"


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def site() -> AsyncGenerator[str]:
    """Yield the address of a web server on this machine."""
    async with answering(b"let through") as address:
        yield address


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def proxied(docker_engine: SandboxHost, site: str) -> AsyncGenerator[SandboxPool]:
    """Yield a pool whose operator allows ``site``."""
    containers = ContainerSettings(allow_hosts=(site,))
    settings = PoolSettings(f"test-proxied-{os.getpid()}", "test", 2, containers=containers)
    async with SandboxPool(settings, docker_engine) as opened:
        yield opened


@pytest.mark.parametrize("level", GradingLevel)
async def test_a_tasks_services_answer_its_agent_and_its_tests_at_every_level(
    pool: SandboxPool, engine: DockerEngine, before: DockerInventory, level: GradingLevel
):
    task = dataclasses.replace(TASK, grading=level)
    async with pool.acquire(task) as session:
        assert (await session.run(ASK_WEB, S)).output.strip() == "web"
        assert len((await engine.inventory()).networks - before.networks) == 1
        assert (await grade_sandbox(session, task)).all_passed


KEEP = """cp /kept/given /kept/found
until [ -e /kept/asked ]; do sleep 0.05; done
echo "$(cat /kept/asked)!" > /kept/answer
exec sleep 1000"""
KEEPER = TaskService("keeper", command=("/.sbx/busybox", "sh", "-c", KEEP), volumes=(SharedFolder("kept", "/kept"),))
READER = TaskService(
    "reader",
    command=("/.sbx/busybox", "httpd", "-f", "-p", "8000", "-h", "/read"),
    volumes=(SharedFolder("kept", "/read", read_only=True),),
)
SHARING = Task(
    id="sharing",
    instruction="",
    services=(KEEPER, READER),
    volumes=(SharedFolder("kept", "/data"), SharedFolder("kept", "/fixed", read_only=True)),
    artifacts=("/data",),
    run_tests="""#!/bin/bash
echo short test summary info
[ "$(echo $(cat /data/found /data/answer))" = "given hello!" ] && echo PASSED shared
""",
)


@pytest.mark.parametrize(
    "level",
    [pytest.param(each, marks=() if each is GradingLevel.LIVE else pytest.mark.slow) for each in GradingLevel],
)
async def test_what_a_service_and_the_agent_write_to_a_shared_volume_they_and_the_tests_see(
    pool: SandboxPool, engine: DockerEngine, before: DockerInventory, level: GradingLevel
):
    """It has at first what the agent's image has there, although services start before the agent."""
    build = ImageBuild({
        "Dockerfile": f"FROM {pool.host.base_image}\nRUN mkdir /data; echo given > /data/given\n".encode()
    })  # fmt: skip
    task = dataclasses.replace(SHARING, build=build, grading=level)
    async with pool.acquire(task) as session:
        assert len((await engine.inventory()).volumes - before.volumes) == 1
        wait = "echo hello > /data/asked; until [ -s /data/answer ]; do sleep 0.05; done; cat /fixed/answer"
        assert (await session.run(wait, S)).output == "hello!\n"
        assert (await session.run(ASK_WEB.replace("web", "reader").replace("hostname", "asked"), S)).output == "hello\n"
        assert (await session.run("touch /fixed/x; echo $?", S)).output.endswith("Read-only file system\n1\n")
        graded = await grade_sandbox(session, task)
        assert graded.all_passed, graded.log


SAYS = "echo $(id -u):$(id -g) $PWD $(ulimit -n) $* > /tmp/hostname; exec /.sbx/busybox httpd -f -p 8000 -h /tmp"
OWN_ENTRYPOINT = ("/.sbx/busybox", "sh", "-c", SAYS, "-", "own")


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({}, "65534:65534 /srv 16384 image given"),
        ({"command": ("a", "b")}, "65534:65534 /srv 16384 image a b"),
        ({"entrypoint": OWN_ENTRYPOINT}, "65534:65534 /srv 16384 own"),
        ({"entrypoint": OWN_ENTRYPOINT, "command": ("a",)}, "65534:65534 /srv 16384 own a"),
        ({"entrypoint": (), "command": OWN_ENTRYPOINT}, "65534:65534 /srv 16384 own"),
        ({"user": "0", "workdir": "/srv/deep"}, "0:0 /srv/deep 16384 image given"),
        ({"user": "1000:50"}, "1000:50 /srv 16384 image given"),
        ({"ulimits": (ProcessLimit("nofile", 300, 300),)}, "65534:65534 /srv 300 image given"),
    ],
    ids=["image", "command", "entrypoint", "both", "no entrypoint", "root", "user", "limits"],
)
async def test_a_service_starts_as_its_image_says_where_the_task_says_nothing_else(
    pool: SandboxPool, given: dict[str, Any], said: str
):
    entrypoint = json.dumps([*OWN_ENTRYPOINT[:-1], "image"])
    lines = ("USER 65534:65534", "WORKDIR /srv", f"ENTRYPOINT {entrypoint}", 'CMD ["given"]')
    build = ImageBuild({"Dockerfile": "\n".join((f"FROM {pool.host.base_image}", *lines)).encode()})
    web = dataclasses.replace(
        WEB, command=(), build=build, healthcheck="/.sbx/busybox wget -qO - http://127.0.0.1:8000/hostname"
    )
    async with pool.acquire(dataclasses.replace(TASK, services=(dataclasses.replace(web, **given),))) as session:
        assert (await session.run(ASK_WEB, S)).output.strip() == said


READY_SOON = "sleep 4; touch /tmp/ready; exec /.sbx/busybox httpd -f -p 8000 -h /tmp"


@pytest.mark.parametrize(("healthcheck", "ready"), [("", "ready"), (None, "")], ids=["the image's", "none"])
async def test_the_check_of_a_services_image_is_waited_for_unless_there_is_to_be_none(
    pool: SandboxPool, healthcheck: str | None, ready: str
):
    check = "HEALTHCHECK --interval=1h CMD test -e /tmp/ready"
    build = ImageBuild({"Dockerfile": f"FROM {pool.host.base_image}\n{check}\n".encode()})
    web = dataclasses.replace(WEB, build=build, command=("sh", "-c", READY_SOON), healthcheck=healthcheck)
    async with pool.acquire(dataclasses.replace(TASK, services=(web,))) as session:
        seen = f"{BUSYBOX} wget -qO /dev/null http://web:8000/ready 2> /dev/null && echo ready"
        assert (await session.run(seen, S)).output.strip() == ready


async def test_a_service_may_have_another_host_name_than_the_one_under_which_it_is_reached(pool: SandboxPool):
    task = dataclasses.replace(TASK, services=(dataclasses.replace(WEB, hostname="web-1.example"),))
    async with pool.acquire(task) as session:
        assert (await session.run(ASK_WEB, S)).output.strip() == "web-1.example"


async def test_a_service_and_the_agent_reach_each_other_by_all_their_names(pool: SandboxPool):
    ask = f"until {BUSYBOX} wget -qO /tmp/said http://shop:8000/said; do {BUSYBOX} sleep 0.1; done"
    visitor = TaskService(
        "visitor",
        command=(BUSYBOX, "sh", "-c", f"{ask}; exec {BUSYBOX} httpd -f -p 8000 -h /tmp"),
        aliases=("guest", "guest-1.example"),
    )
    async with pool.acquire(dataclasses.replace(TASK, services=(visitor,), aliases=("main", "shop"))) as session:
        await session.run(f"mkdir /tmp/s; echo hello > /tmp/s/said; {BUSYBOX} httpd -p 8000 -h /tmp/s", S)
        for name in ("visitor", "guest", "guest-1.example"):
            asked = f"until {BUSYBOX} wget -qO - http://{name}:8000/said; do sleep 0.1; done 2> /dev/null"
            assert (await session.run(asked, S)).output == "hello\n"


def step(name: str, script: str, **given: Any) -> TaskService:
    """Return a service that runs a script with a volume of all at /kept."""
    command = (BUSYBOX, "sh", "-c", script)
    return TaskService(name, command=command, volumes=(SharedFolder("kept", "/kept"),), **given)


async def test_services_start_when_those_that_they_need_have_ended_or_are_healthy(
    pool: SandboxPool, engine: DockerEngine, before: DockerInventory
):
    """What has ended as it should is not taken for dead, also by a process that takes the session over."""
    waits = f"{BUSYBOX} sleep 1; {BUSYBOX} touch"
    services = (
        step("last", "ls /kept > /kept/seen; exec sleep 1000",
             depends_on={"schema": ServiceCondition.COMPLETED, "db": ServiceCondition.HEALTHY}, healthcheck="true"),
        step("schema", f"{waits} /kept/made", depends_on={"db": ServiceCondition.STARTED}, ends=True),
        step("db", f"{waits} /kept/ready; exec sleep 1000", healthcheck="/.sbx/busybox test -e /kept/ready"),
    )  # fmt: skip
    task = dataclasses.replace(TASK, services=services, volumes=(SharedFolder("kept", "/kept"),))
    async with pool.acquire(task) as session:
        assert (await session.run("cat /kept/seen", S)).output.split() == ["made", "ready", "seen"]
        assert session.spec is not None
        left = await engine.containers({NETWORK_LABEL: session.spec.network})
        assert {each.labels[SERVICE_LABEL] for each in left} == {"last", "db"}
        async with adopt_services(engine, pool.images, services, session.container) as network:
            assert network == session.spec.network


async def test_a_service_that_does_not_end_as_it_should_is_the_tasks_fault(pool: SandboxPool, before: DockerInventory):
    schema = step("schema", "exit 3", ends=True)
    web = dataclasses.replace(WEB, depends_on={"schema": ServiceCondition.COMPLETED})
    with pytest.raises(TaskFault, match="service schema exited with 3"):
        async with pool.acquire(dataclasses.replace(TASK, services=(web, schema))):
            pytest.fail("it was opened")


COUNTS = f"echo >> /kept/starts; [ $({BUSYBOX} wc -l < /kept/starts) -ge 3 ]"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("restart", "script", "ends", "starts"),
    [
        ("on-failure", COUNTS, True, 3),
        ("on-failure:2", COUNTS, True, 3),
        ("on-failure:1", COUNTS, True, None),
        ("always", f"{COUNTS} && exec sleep 1000", False, 3),
    ],
)
async def test_a_service_is_started_again_as_it_says(
    pool: SandboxPool, restart: str, script: str, ends: bool, starts: int | None
):
    """Otherwise one that fails until another one answers would fail the task."""
    service = step("db", script, restart=restart, ends=ends)
    task = dataclasses.replace(TASK, services=(service,), volumes=(SharedFolder("kept", "/kept"),))
    if starts is None:
        with pytest.raises(TaskFault, match="service db exited with 1"):
            async with pool.acquire(task):
                pytest.fail("it was opened")
        return
    async with pool.acquire(task) as session:
        wait = f"until [ $(wc -l < /kept/starts) -ge {starts} ]; do sleep 0.1; done; sleep 2; wc -l < /kept/starts"
        assert (await session.run(wait, S)).output.strip() == str(starts)


async def test_a_service_starts_the_images_program_where_busybox_has_one_of_the_same_name(pool: SandboxPool):
    build = ImageBuild({
        "Dockerfile": f"FROM {pool.host.base_image}\nCOPY --chmod=755 httpd /usr/local/bin/\n".encode(),
        "httpd": b"#!/bin/sh\necho $* > /tmp/hostname; exec /.sbx/busybox httpd -f -p 8000 -h /tmp\n",
    })  # fmt: skip
    web = dataclasses.replace(WEB, build=build, command=("httpd", "own"))
    ask = f"until {ASK_WEB} | grep own; do sleep 0.1; done"
    async with pool.acquire(dataclasses.replace(TASK, services=(web,))) as session:
        assert (await session.run(ask, S)).output == "own\n"


CAPABILITIES = "$(sed -n 's/CapBnd:.0*//p' /proc/self/status)"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("given", "says", "said"),
    [
        ({"pids": 77}, "$(cat /sys/fs/cgroup/pids/pids.max || cat /sys/fs/cgroup/pids.max)", "77"),
        ({}, CAPABILITIES, "a00400fb"),
        ({"capabilities": ("CHOWN",)}, CAPABILITIES, "21"),
        ({"capabilities": ("KILL", "SETPCAP", "NET_BIND_SERVICE", "IPC_LOCK")}, CAPABILITIES, "4520"),
        (
            {"read_only": True, "tmpfs": ("/tmp",)},
            "$(touch /x || echo refused)",
            "refused",
        ),
        ({"tty": True}, "$(tty)", "/dev/pts/0"),
        ({"tty": True, "stdin_open": True}, "$(timeout 1 cat; echo $?)", "124"),
        ({"stdin_open": True}, "$(timeout 1 cat; echo $?)", "124"),
        ({}, "$(timeout 1 cat; echo $?)", "0"),
    ],
    ids=["pids", "capabilities", "one", "others", "read-only", "terminal", "both", "input", "no input"],
)
async def test_a_service_has_what_its_task_gives_it(pool: SandboxPool, given: dict[str, Any], says: str, said: str):
    script = f"echo {says} > /tmp/hostname; exec {BUSYBOX} httpd -f -p 8000 -h /tmp"
    web = dataclasses.replace(WEB, command=("sh", "-c", script), **given)
    ask = f"until {BUSYBOX} wget -qO - http://web:8000/hostname; do sleep 0.1; done 2> /dev/null"
    async with pool.acquire(dataclasses.replace(TASK, services=(web,))) as session:
        assert (await session.run(ask, S)).output.strip() == said


async def test_everything_of_a_session_carries_the_label_by_which_leaks_are_found(
    pool: SandboxPool, engine: DockerEngine, before: DockerInventory
):
    """Otherwise what a run leaves would be taken for somebody else's."""
    run = pool.settings.run_id
    async with pool.acquire(SHARING):
        own = await inventory_where(engine, lambda labels: labels.get(RUN_LABEL) == run)
        of_strangers = await inventory_of_strangers(engine)
        new = (await engine.inventory()).new_since(before)
    assert len(own.containers) >= 1 + len(SHARING.services)
    assert new.networks & own.networks
    assert new.volumes & own.volumes
    assert not new.networks & of_strangers.networks
    assert not new.volumes & own.volumes & of_strangers.volumes
    assert not own.containers & of_strangers.containers


@pytest.mark.slow
async def test_two_sessions_of_a_task_have_services_of_their_own(pool: SandboxPool, before: DockerInventory):
    store = dataclasses.replace(TASK, services=(dataclasses.replace(WEB, name="a"), WEB))
    async with pool.acquire(store) as one, pool.acquire(store) as other:
        address = "getent hosts web | cut -d ' ' -f 1"
        assert (await one.run(address, S)).output != (await other.run(address, S)).output
        assert one.spec is not None
        assert other.spec is not None
        assert one.spec.network != other.spec.network


async def test_a_task_without_services_or_network_creates_no_network_and_no_proxy(
    engine: DockerEngine, docker_engine: SandboxHost
):
    there = await engine.inventory()
    async with SandboxPool(PoolSettings(f"plain-{os.getpid()}", "test", 1), docker_engine) as plain:
        async with plain.acquire(Task(id="t", instruction="")) as session:
            assert session.spec is not None
            assert session.spec.network == "none"
            assert (await engine.inventory()).networks == there.networks
        assert plain.egress_proxy.statistics() is None


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({"services": (WEB, DEAD)},
         TaskFault),
        ({"services": (dataclasses.replace(WEB, user="nobody-known"),)}, TaskFault),
        ({"services": (dataclasses.replace(WEB, user="0:nobody-known"),)}, TaskFault),
        ({"services": (dataclasses.replace(WEB, workdir="/etc/passwd/no"),)}, TaskFault),
        ({"services": (dataclasses.replace(WEB, image="127.0.0.1:9/absent:0"),)}, SandboxStartError),
        ({"services": tuple(dataclasses.replace(WEB, name=f"s{n}") for n in range(MAX_SERVICES + 1))}, UserError),
        ({"image": "127.0.0.1:9/absent:0"}, SandboxStartError),
        ({"setup": "exit 3", "network": TaskNetwork(agent=PROXY)}, TaskFault),
        ({"workdir": "/proc/1/no"}, None),
    ],
    ids=["service ends", "its user", "its group", "its folder", "no image", "too many", "no image of its own",
         "setup", "odd folder"],
)  # fmt: skip
async def test_a_session_that_cannot_be_opened_leaves_nothing_behind(
    pool: SandboxPool, before: DockerInventory, change: dict[str, Any], error: type[Exception] | None
):
    live = pool.statistics().live
    if error is None:
        async with pool.acquire(dataclasses.replace(TASK, **change)):
            pass
    else:
        with pytest.raises(error):
            async with pool.acquire(dataclasses.replace(TASK, **change)):
                pytest.fail("it was opened")
    assert pool.statistics().live == live


@pytest.mark.parametrize("after_events", [1, 3, 4, 6, 8])
async def test_an_opening_that_is_cancelled_anywhere_leaves_nothing(
    pool: SandboxPool, before: DockerInventory, after_events: int
):
    """The opening is cancelled while the daemon handles its Nth call."""
    calls, reached = itertools.count(1), asyncio.Event()
    on_docker_request(pool.engine, lambda _: reached.set() if next(calls) == after_events else None)
    task = dataclasses.replace(TASK, network=TaskNetwork(agent=PROXY), setup="sleep 1000")
    async with asyncio.TaskGroup() as group:
        opening = group.create_task(pool.open(task))
        await reached.wait()
        opening.cancel()
    assert opening.cancelled()


async def test_a_session_with_services_never_comes_from_the_warm_pool_nor_goes_there(docker_engine: SandboxHost):
    settings = PoolSettings(f"warm-{os.getpid()}", "test", 3, warm_per_kind=1)
    async with SandboxPool(settings, docker_engine) as warm:
        plain = dataclasses.replace(TASK, services=())
        await warm.prewarm(plain, 1)
        assert warm.statistics().warm == 1
        await warm.prewarm(TASK, 1)
        for task in (TASK, dataclasses.replace(plain, network=TaskNetwork(verify=PROXY))):
            async with warm.acquire(task):
                assert warm.statistics().warm_hits == 0
        assert warm.statistics().warm == 1
        async with warm.acquire(plain):
            assert warm.statistics().warm_hits == 1


async def test_an_agent_behind_the_proxy_reaches_only_the_hosts_that_its_task_or_the_operator_lists(
    proxied: SandboxPool, site: str, monkeypatch: pytest.MonkeyPatch
):
    loop = asyncio.get_running_loop()
    resolve = loop.getaddrinfo

    def fake_getaddrinfo(host: str, *given: Any, **options: Any) -> Awaitable[Any]:
        return resolve("127.0.0.1" if host == OWN else host, *given, **options)

    monkeypatch.setattr(loop, "getaddrinfo", fake_getaddrinfo)
    listed = dataclasses.replace(TASK, network=TaskNetwork(agent=PROXY, allowed_hosts=(OWN,)))
    other = dataclasses.replace(TASK, services=(), network=TaskNetwork(agent=PROXY))
    async with proxied.acquire(listed) as one, proxied.acquire(other) as two:
        for session in (one, two):
            assert "let through" in (await session.run(through_proxy(f"http://{site}/"), S)).output
        assert f"{OWN} leads to" in (await one.run(through_proxy(f"http://{OWN}/"), S)).output
        assert f"{OWN}:80 is not among" in (await two.run(through_proxy(f"http://{OWN}/"), S)).output
        assert f"http://{PROXY_HOST}:{PROXY_PORT}" in (await one.run("echo $http_proxy", S)).output
        assert ",web" in (await one.run("echo $no_proxy", S)).output
        assert (await one.run(ASK_WEB, S)).output.strip() == "web"
        assert (statistics := proxied.egress_proxy.statistics())
        assert statistics.open == 2
    assert (statistics := proxied.egress_proxy.statistics())
    assert statistics.open == 0


async def test_programs_of_an_agent_ask_the_proxy_whatever_its_task_says_of_proxies(proxied: SandboxPool):
    """A host that is allowed could not be reached at all without the proxy."""
    own = {"NO_PROXY": OWN, "no_proxy": "*", "http_proxy": "http://old.example", "PIP_INDEX_URL": "http://a.example"}
    network = TaskNetwork(agent=PROXY, allowed_hosts=(OWN,))
    task = dataclasses.replace(TASK, services=(), network=network, env=own, agent_env=own, hostname="box")
    async with proxied.acquire(task) as session:
        told = await session.run("echo $http_proxy $PIP_INDEX_URL; echo $no_proxy; echo $NO_PROXY", S)
    first, *excepted = told.output.split("\n")
    assert first == f"http://{PROXY_HOST}:{PROXY_PORT} http://a.example"
    assert excepted[0] == excepted[1]
    assert OWN not in excepted[0]
    assert excepted[0].endswith(",box")


async def _agent_sees(session: SandboxSession, url: str) -> str:
    """Return 200, 403, or nothing if there is no proxy."""
    words = (await session.run(f"{through_proxy(url)} | head -n 1", S)).output.split()
    return words[1] if words[:1] == ["HTTP/1.1"] else ""


@pytest.mark.parametrize("level", GradingLevel)
@pytest.mark.parametrize(("agent", "verify"), [(NONE, PROXY), (PROXY, NONE), (PROXY, PROXY), (PROXY, FULL)])
async def test_tests_have_their_own_network_and_the_agents_shell_goes_on(
    proxied: SandboxPool, site: str, agent: NetworkMode, verify: NetworkMode, level: GradingLevel
):
    url = f"http://{site}/"
    tests = f'[[ "$({through_proxy(url)} | head -n 1)" == *200* ]] && echo PASSED reached; true\n'
    check = f'[[ -n $http_proxy ]] && echo PASSED told; echo "FAILED nothing"\n{tests}'
    task = dataclasses.replace(
        TASK,
        services=(),
        run_tests=f"#!/bin/bash\necho short test summary info\n{check}",
        network=TaskNetwork(agent=agent, verify=verify),
        grading=level,
    )
    seen = {NONE: "", PROXY: "200"}[agent]
    async with proxied.acquire(task) as session:
        await session.run("kept=yes", S)
        assert await _agent_sees(session, url) == seen
        graded = await grade_sandbox(session, task)
        passed = {test.name for test in graded.tests if test.passed}
        assert passed == (set() if verify is NONE else {"told", "reached"}), graded.log
        assert await _agent_sees(session, url) == seen
        if level is GradingLevel.SIBLING:
            assert (await session.run("echo $kept", S)).output == "yes\n"


async def test_an_agent_that_occupies_the_address_of_the_proxy_is_blamed_for_the_failure(pool: SandboxPool):
    task = dataclasses.replace(
        TASK, services=(), network=TaskNetwork(verify=PROXY), grading=GradingLevel.SIBLING, artifacts=("/app",)
    )
    async with pool.acquire(task) as session:
        listen = (
            "use IO::Socket::INET; "
            f'$s = IO::Socket::INET->new(Listen => 1, LocalAddr => "{PROXY_HOST}:{PROXY_PORT}"); sleep'
        )
        await session.run(f"perl -e '{listen}' & until grep -q :0C38 /proc/net/tcp; do sleep 0.1; done", S)
        with pytest.raises(SandboxDestroyed, match="prevents the tests' network"):
            await grade_sandbox(session, task)


async def test_a_build_reaches_the_proxy_and_a_broken_build_is_reported_with_its_last_lines(
    pool: SandboxPool, before: DockerInventory
):
    def task(run: str, mode: NetworkMode) -> Task:
        dockerfile = f"FROM {pool.host.base_image}\nRUN {run}\nLABEL a={os.getpid()}\n"
        return dataclasses.replace(
            TASK,
            id=run[:4],
            services=(),
            build=ImageBuild({"Dockerfile": dockerfile.encode()}),
            network=TaskNetwork(build=mode),
            solution="true",
            run_tests="#!/bin/sh\necho short test summary info; false && echo PASSED a || echo FAILED a\n",
        )

    gated = f'test "$http_proxy" = http://{PROXY_HOST}:{PROXY_PORT} && grep -q :0C38 /proc/net/tcp'
    tasks = [task(gated, PROXY), task(f"true && {gated}", NONE), task("echo what it said last; exit 9", NONE)]
    proofs = await prove_tasks(tasks, pool_proof_environment(pool), 1)
    assert [proof.verdict for proof in proofs] == [ProofVerdict.ORACLE_FAILS, ProofVerdict.BROKEN, ProofVerdict.BROKEN]
    assert "what it said last" in proofs[2].why


async def test_network_full_without_a_bridge_is_the_proxy_and_refuses_private_addresses(
    pool: SandboxPool, before: DockerInventory
):
    task = dataclasses.replace(TASK, services=(), network=TaskNetwork(agent=FULL))
    with socket.socket() as nobody:
        nobody.bind((PROXY_HOST, 0))
        async with pool.acquire(task) as session:
            assert session.spec is not None
            if session.spec.network != "none":
                pytest.skip("this engine has a bridge: see test_bridge_in_docker")
            assert await _agent_sees(session, f"http://{PROXY_HOST}:{nobody.getsockname()[1]}/") == "403"
            assert f"http://{PROXY_HOST}:{PROXY_PORT}" in (await session.run("echo $http_proxy", S)).output

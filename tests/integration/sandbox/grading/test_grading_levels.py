"""If these fail, a level grades something else than the agent's files, or leaves a container, an image or a frozen
process."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from dataclasses import replace

import aiodocker
import pytest
import pytest_asyncio
from aiodocker.containers import DockerContainer

from sandbox.capabilities import BASE_CAPABILITIES
from sandbox.docker.cgroups import cgroup_procs
from sandbox.docker.engine import DockerEngine
from sandbox.docker.labels import POOL_LABEL
from sandbox.docker.retry import DockerEngineError
from sandbox.errors import SandboxLost
from sandbox.grading.containers import agent_processes, carried_files
from sandbox.grading.containers.container_calls import container_pids, main_pid, pause_container
from sandbox.grading.grader import grade_sandbox
from sandbox.grading.isolation.decision import Isolation
from sandbox.grading.results.verdict import GradingOutcome
from sandbox.host_record import SandboxHost
from sandbox.pool import container_template
from sandbox.pool.sandbox_pool import PoolSettings, SandboxPool
from sandbox.tasks.task import Task
from sandbox.tasks.task_containers import ImageBuild, TestsEnvironment
from sandbox.tasks.task_grading import GradingLevel
from sandbox.tasks.task_network import NetworkMode, TaskNetwork

pytestmark = [pytest.mark.first_case, pytest.mark.docker, pytest.mark.asyncio(loop_scope="session")]
S = 60.0
HEAD = '#!/bin/sh\necho "=== short test summary info ==="\n'
NO_KILL = tuple(each for each in BASE_CAPABILITIES if each != "KILL")
BESIDE = (GradingLevel.COMMIT, GradingLevel.ARTIFACTS, GradingLevel.SIBLING)


def task(body: str, level: GradingLevel, *expected: str, **more) -> Task:
    return Task("level", "", run_tests=HEAD + body, expected_tests=expected, grading=level, test_timeout_s=S, **more)


async def images(engine: DockerEngine, pool: SandboxPool) -> int:
    """Count the images with this pool's label, which are copies of its containers."""
    found = await engine.docker.images.list(all=True)
    return sum((each["Labels"] or {}).get(POOL_LABEL) == pool.settings.name for each in found)


async def pool_containers(engine: DockerEngine, pool: SandboxPool) -> set[str]:
    """Return the ids of this pool's containers, in any state."""
    return {each.id for each in await engine.containers({POOL_LABEL: pool.settings.name})}


@pytest_asyncio.fixture(autouse=True, loop_scope="session")
async def nothing_is_left(engine: DockerEngine, pool: SandboxPool) -> AsyncGenerator[None]:
    yield
    assert await images(engine, pool) == 0, "copies were left"


OWN_TESTS = """
[ "$(cat /tests/secret)" = s ] && echo PASSED bundled
[ "$(cat /app/left)" = work ] && echo PASSED artifact
[ ! -e /given ] && [ ! -e /etc/changed ] && echo PASSED clean
[ "$(whoami) $PWD $A$B" = "checker /checks 12" ] && echo PASSED environment
[ ! -e /tests/planted ] && echo PASSED untouched
limit=$(cat /sys/fs/cgroup/memory.max /sys/fs/cgroup/memory/memory.limit_in_bytes 2> /dev/null)
[ "$limit" = $((300 << 20)) ] && echo PASSED limited
"""


async def test_tests_run_in_an_image_of_their_own(pool: SandboxPool, docker_engine: SandboxHost):
    dockerfile = f"""
FROM {docker_engine.base_image}
RUN echo 'checker:x:1234:1234::/:/bin/sh' >> /etc/passwd
ENV A=1
WORKDIR /checks
COPY . /tests
USER checker
"""
    files = {"Dockerfile": dockerfile.encode(), "secret": b"s", "test.sh": (HEAD + OWN_TESTS).encode()}
    graded = task(
        OWN_TESTS,
        GradingLevel.ARTIFACTS,
        *("bundled", "artifact", "clean", "environment", "untouched", "limited"),
        artifacts=("/app/left", "/tests"),
        files={"/given": b""},
        env={"B": "agent's"},
        tests_environment=TestsEnvironment(build=ImageBuild(files), env={"B": "2"}, memory_mb=300),
        network=TaskNetwork(build=NetworkMode.NONE),
    )
    async with pool.acquire(graded) as session:
        await session.run("echo work > /app/left; touch /etc/changed; mkdir /tests; touch /tests/planted", S)
        result = await grade_sandbox(session, graded)
        assert result.all_passed, result.log
        assert result.isolation is Isolation.IMAGE


WHERE = """
[ -e /app/left ] && echo PASSED file
[ -e /etc/changed ] && echo PASSED system
[ -e /given ] && echo PASSED given
[ "$(cat /app/given)" = changed ] && echo PASSED artifact
"""


@pytest.mark.parametrize(
    ("level", "artifacts", "seen"),
    [
        (GradingLevel.SAME, (), {"file", "system", "given", "artifact"}),
        (GradingLevel.COMMIT, (), {"file", "system", "given", "artifact"}),
        (GradingLevel.ARTIFACTS, ("/app", "/none"), {"file", "given", "artifact"}),
        (GradingLevel.ARTIFACTS, ("/app/left",), {"file", "given"}),
        (GradingLevel.SIBLING, (), {"file", "system", "given", "artifact"}),
    ],
)
async def test_each_level_sees_its_share_of_the_agents_files(
    pool: SandboxPool, engine: DockerEngine, level, artifacts, seen
):
    files = {"/app/given": b"as it was", "/given": b"x"}
    graded = task(WHERE, level, "file", "system", "given", "artifact", files=files, artifacts=artifacts)
    async with pool.acquire(graded) as session:
        await session.run("touch /app/left /etc/changed; printf changed > /app/given; sleep 1008 &", S)
        before = await pool_containers(engine, pool)
        result = await grade_sandbox(session, graded)
        assert {test.name for test in result.tests if test.passed} == seen, result.log
        assert (await session.run("cat /app/given; pgrep -cf 'sleep 100[8]'", S)).output == (
            "changed1\n" if level is GradingLevel.SIBLING else "changed0\n"
        ), "the agent's container is not frozen, and only a sibling leaves its processes alive"
        assert await pool_containers(engine, pool) <= before, "the grading left containers"
        assert session.container in before


VOLUMES = """
[ -e /app/left ] && echo PASSED file
[ -e /data/left ] && echo PASSED volume
[ "$(echo $(ls /tests))" = "pytest.ini run-tests.sh test.sh" ] && echo PASSED tests
[ -e /data/given ] || echo PASSED gone
"""


@pytest.mark.parametrize(
    ("level", "artifacts", "seen"),
    [
        (GradingLevel.SAME, (), {"file", "volume", "tests", "gone"}),
        (GradingLevel.COMMIT, (), {"file", "volume", "tests", "gone"}),
        (GradingLevel.ARTIFACTS, ("/app", "/data"), {"file", "volume", "tests", "gone"}),
        (GradingLevel.SIBLING, (), {"file", "volume", "tests", "gone"}),
    ],
)
async def test_each_level_sees_the_volumes_of_the_image(
    pool: SandboxPool, engine: DockerEngine, level, artifacts, seen
):
    """No level leaves a volume behind."""
    lines = ("RUN mkdir /data; touch /data/given", "VOLUME /data /tests")
    build = ImageBuild({"Dockerfile": "\n".join((f"FROM {pool.host.base_image}", *lines, "")).encode()})
    graded = task(VOLUMES, level, "file", "volume", "tests", "gone", build=build, artifacts=artifacts)
    before = (await engine.inventory()).volumes
    async with pool.acquire(graded) as session:
        await session.run("touch /app/left /data/left /tests/left; rm /data/given", S)
        result = await grade_sandbox(session, graded)
        assert {test.name for test in result.tests if test.passed} == seen, result.log
    async with asyncio.timeout(S):
        while (await engine.inventory()).volumes - before:  # noqa: ASYNC110  the engine tells nobody
            await asyncio.sleep(0.1)


async def test_an_artifact_is_graded_as_the_agent_left_it_even_if_removed_or_behind_a_link(pool: SandboxPool):
    body = """
[ -e /srv/folder/old ] || echo PASSED removed
[ -e /srv/file ] || echo PASSED gone
[ "$(cat /srv/real/new)" = mine ] && [ -L /link ] && echo PASSED linked
"""
    made = "RUN mkdir -p /srv/folder /srv/real; touch /srv/folder/old /srv/file; ln -s /srv/real /link"
    build = ImageBuild({"Dockerfile": f"FROM {pool.host.base_image}\n{made}\n".encode()})
    artifacts = ("/srv/folder", "/srv/file", "/link")
    graded = task(body, GradingLevel.ARTIFACTS, "removed", "gone", "linked", build=build, artifacts=artifacts)
    async with pool.acquire(graded) as session:
        await session.run("rm /srv/folder/old /srv/file; echo mine > /link/new", S)
        result = await grade_sandbox(session, graded)
        assert result.all_passed, result.log


LINKED = """
[ "$(cat /app/answer)" = right ] && echo PASSED file
[ "$(cat /data/deep/answer)" = right ] && echo PASSED folder
[ "$(cat /known)" = right ] && echo PASSED image
[ -e /app/none ] || echo PASSED nothing
"""


@pytest.mark.parametrize("level", GradingLevel)
async def test_an_artifact_that_the_agent_made_a_link_is_graded_as_its_target(pool: SandboxPool, level: GradingLevel):
    """Otherwise an agent that keeps its work elsewhere would score nothing where only artifacts are copied."""
    build = ImageBuild({"Dockerfile": f"FROM {pool.host.base_image}\nRUN touch /old; ln -s /old /known\n".encode()})
    artifacts, tests = ("/app/answer", "/app/none", "/data", "/known"), ("file", "folder", "image", "nothing")
    graded = task(LINKED, level, *tests, build=build, artifacts=artifacts)
    links = "ln -s out/v2 /app/answer; ln -s gone /app/none; ln -s /work/v1 /data; ln -sf /work/known /known"
    made = "mkdir -p /app/out /srv/work/v1/deep; ln -s /srv/work /work; ln -s v3 /app/out/v2"
    works = "echo right | tee /app/out/v3 /work/v1/deep/answer > /work/known"
    async with pool.acquire(graded) as session:
        await session.run(f"{made}; {works}; {links}", S)
        result = await grade_sandbox(session, graded)
        assert result.all_passed, result.log


@pytest.mark.parametrize("leads_to", ["/", "/tests", "/.sbx/bash", "/dev/null", "/app/answer"])
async def test_an_artifact_with_a_forbidden_link_target_fails_its_tests(pool: SandboxPool, leads_to: str):
    graded = task("echo PASSED x\n", GradingLevel.ARTIFACTS, "x", artifacts=("/app/answer",))
    async with pool.acquire(graded) as session:
        await session.run(f"ln -s {leads_to} /app/answer", S)
        result = await grade_sandbox(session, graded)
        assert result.score == 0.0
        assert "could not be copied to the tests" in result.log


BEGINS = '[ "$PWD" = / ] && echo PASSED root || echo PASSED inside\n'


@pytest.mark.parametrize(("deep", "seen"), [(1, "inside"), (14, "inside"), (17, "root"), (30, "root")])
@pytest.mark.parametrize("level", [GradingLevel.SAME, GradingLevel.COMMIT])
async def test_the_tests_begin_in_the_same_folder_with_and_without_a_copy(
    pool: SandboxPool, level, deep: int, seen: str
):
    """A copy lacks paths that are too deep for a program to name, so the agent's own container must behave alike."""
    graded = task(BEGINS, level, "root", "inside")
    name, half = "n" * 240, deep // 2
    links = f"ln -s /x/{'/'.join([name] * half)} /half; ln -s /half/{'/'.join([name] * (deep - half))} /app"
    async with pool.acquire(graded) as session:
        folders = f"mkdir /x; cd /x; {f'mkdir {name}; cd {name}; ' * deep}"
        made = await session.run(f"{folders} rm -r /app; {links}; cd /app", S)
        assert not made.output
        result = await grade_sandbox(session, graded)
        assert [test.name for test in result.tests if test.passed] == [seen], result.log


COMPARES = """
if diff <(cat /app/answer) <(cat "$TEST_DIR/expected") > /dev/null; then echo PASSED x; else echo FAILED x; fi
"""


async def test_tampering_with_device_files_does_not_pass_a_wrong_answer(pool: SandboxPool):
    graded = task(COMPARES, GradingLevel.SAME, "x", tests={"expected": b"right\n"})
    graded = replace(graded, run_tests=graded.run_tests.replace("#!/bin/sh", "#!/bin/bash"))
    folder = "rm -rf /dev/fd; mkdir /dev/fd; for n in $(seq 0 255); do echo same > /dev/fd/$n; done"
    chmods = "chown -R 65534 /dev; chmod 777 /dev"
    for command, score in (
        (f"{folder}; {chmods}; echo wrong > /app/answer", 0.0),
        (f"{folder}; {chmods}; echo right > /app/answer", 1.0),
        ("echo right > /app/answer; rm /dev/null; echo > /dev/null", 0.0),
    ):
        async with pool.acquire(graded) as session:
            await session.run(command, S)
            result = await grade_sandbox(session, graded)
            assert result.score == score, result.log
    assert "/dev/null: no longer the device" in result.log


@pytest.mark.parametrize("level", GradingLevel)
async def test_the_healthcheck_of_an_image_does_not_run_during_its_tests(pool: SandboxPool, level: GradingLevel):
    check = "HEALTHCHECK --interval=1s CMD touch /app/checked"
    build = ImageBuild({"Dockerfile": f"FROM {pool.host.base_image}\n{check}\n".encode()})
    body = "\nsleep 3; [ -e /app/checked ] || echo PASSED unchecked\n"
    graded = task(body, level, "unchecked", build=build, artifacts=("/app",))
    async with pool.acquire(graded) as session:
        result = await grade_sandbox(session, graded)
        assert result.all_passed, result.log


async def test_a_sibling_reaches_the_live_service_and_sees_none_of_its_processes(pool: SandboxPool):
    body = """
[ "$(wget -q -O - http://127.0.0.1:8123/page)" = hello ] && echo PASSED live
ps -o args | grep -q '[h]ttpd' || echo PASSED apart
[ -e /tests/run-tests.sh ] && echo PASSED tests
"""
    graded = task(body, GradingLevel.SIBLING, "live", "apart", "tests")
    async with pool.acquire(graded) as session:
        await session.run("echo hello > /app/page; /.sbx/busybox httpd -p 127.0.0.1:8123 -h /app", S)
        result = await grade_sandbox(session, graded)
        assert result.all_passed, result.log
        assert (await session.run("ls -d /tests", S)).exit_code != 0, "the tests came into the agent's container"


@pytest.mark.parametrize("level", BESIDE)
async def test_grading_in_a_removed_container_fails_with_the_cause(pool: SandboxPool, level: GradingLevel):
    graded = task("", level, "x")
    async with pool.acquire(graded) as session:
        await pool.engine.remove(session.container)
        with pytest.raises(SandboxLost, match="killed from outside"):
            await grade_sandbox(session, graded)


async def test_artifacts_that_are_too_large_or_of_another_file_type_fail_their_tests(pool: SandboxPool, monkeypatch):
    graded = task("echo PASSED x", GradingLevel.ARTIFACTS, "x", artifacts=("/app",))
    monkeypatch.setattr(carried_files, "MAX_ARTIFACT_BYTES", 1 << 20)
    for command, why in (
        ("head -c 2M /dev/zero > /app/big", "1 MiB"),
        ("cd /; rm -rf /app; mkfifo /app", "neither a file nor a folder"),
    ):
        async with pool.acquire(graded) as session:
            await session.run(command, S)
            result = await grade_sandbox(session, graded)
            assert (result.score, result.tests[0].outcome) == (0.0, GradingOutcome.MISSING)
            assert why in result.log


CTRF = """
cat > /logs/verifier/ctrf.json <<'EOF'
{"results": {"tests": [{"name": "t.py::a", "status": "passed"}, {"name": "t.py::b", "status": "skipped"}]}}
EOF
"""


async def test_report_files_are_read_and_old_ones_are_not(pool: SandboxPool):
    ctrf, reward = "/logs/verifier/ctrf.json", "/logs/verifier/reward.txt"
    both = task(CTRF, GradingLevel.SAME, "a", "b", reports=(ctrf, reward), weights={"a": 3.0})
    async with pool.acquire(both) as session:
        await session.run(f"mkdir -p /logs/verifier; echo 1 > {reward}", S)
        result = await grade_sandbox(session, both)
        assert [test.outcome for test in result.tests] == [GradingOutcome.PASSED, GradingOutcome.SKIPPED], result.log
        assert (result.score, result.reward) == (0.75, None)
        silent = await grade_sandbox(session, task("echo PASSED a", GradingLevel.SAME, "a", reports=(ctrf, reward)))
        assert (silent.score, silent.log.count("wrote none of")) == (0.0, 1)
        fraction = await grade_sandbox(session, task(f"echo 0.25 > {reward}", GradingLevel.SAME, reports=(reward,)))
        assert (fraction.score, fraction.reward, fraction.all_passed) == (0.25, 0.25, False)


async def test_a_pass_with_commands_that_touched_the_tests_is_flagged_and_a_failure_is_not(pool: SandboxPool):
    graded = task("[ -e /app/x ] && echo PASSED x || echo FAILED x", GradingLevel.SAME, "x")
    commands = ("touch /app/x", "ls /tests")
    async with pool.acquire(graded) as session:
        assert not (await grade_sandbox(session, graded, commands=commands)).suspicions
        await session.run(commands[0], S)
        (found,) = (await grade_sandbox(session, graded, commands=commands)).suspicions
        assert (found.command, found.touched) == (1, "the tests' folder")


def another_users(command: str) -> str:
    """Start a process of another user; return once it runs as that user."""
    runs = f"pgrep -u 65534 -fx '{command}' >/dev/null"
    return f"setpriv --reuid=65534 --regid=65534 --clear-groups {command} & until {runs}; do sleep 0.02; done"


async def test_processes_of_another_user_are_killed_from_the_host_when_pid_1_may_not_kill_them(
    docker_engine: SandboxHost, monkeypatch
):
    monkeypatch.setattr(container_template, "BASE_CAPABILITIES", NO_KILL)
    graded = task("echo PASSED x", GradingLevel.SAME, "x")
    async with SandboxPool(PoolSettings("no-kill", "test", 1), docker_engine) as pool, pool.acquire(graded) as session:
        await session.run(another_users("sleep 1009"), S)
        assert len(await container_pids(pool.engine, session.container)) > 2
        await agent_processes.kill_processes_by_cgroup(session)
        assert await container_pids(pool.engine, session.container) == (await main_pid(pool.engine, session.container),)


@pytest.mark.slow
async def test_grading_falls_back_to_killing_processes_from_the_host(docker_engine: SandboxHost, monkeypatch):
    monkeypatch.setattr(container_template, "BASE_CAPABILITIES", NO_KILL)
    graded = task("ps -o args | grep -q '[s]leep 1010' || echo PASSED x", GradingLevel.SAME, "x")
    async with SandboxPool(PoolSettings("no-kill", "test", 1), docker_engine) as pool, pool.acquire(graded) as session:
        await session.run(another_users("sleep 1010"), S)
        assert (await grade_sandbox(session, graded)).all_passed
        monkeypatch.setattr(agent_processes, "cgroup_procs", lambda *_: None)
        await session.run(another_users("sleep 1010"), S)
        with pytest.raises(SandboxLost, match="Docker daemon runs on another host"):
            await grade_sandbox(session, graded)


async def test_a_paused_container_is_resumed_after_an_error(pool: SandboxPool):
    async with pool.acquire(task("", GradingLevel.COMMIT, "x")) as session:
        with pytest.raises(RuntimeError):
            async with pause_container(pool.engine, session.container):
                raise RuntimeError
        assert (await session.run("echo alive", S)).output == "alive\n"


@pytest.mark.parametrize("moment", ["pause", "commit"])
async def test_a_cancelled_copy_leaves_neither_image_nor_frozen_container(pool: SandboxPool, monkeypatch, moment: str):
    graded, requested = task("", GradingLevel.COMMIT, "x"), asyncio.Event()
    real = getattr(DockerContainer, moment)

    async def seen(*arguments, **more):
        requested.set()
        return await real(*arguments, **more)

    monkeypatch.setattr(DockerContainer, moment, seen)
    async with pool.acquire(graded) as session:
        async with asyncio.TaskGroup() as group:
            grading = group.create_task(grade_sandbox(session, graded))
            await requested.wait()
            grading.cancel()
        assert (await session.run("echo alive", S)).output == "alive\n"


@pytest.mark.parametrize("level", BESIDE)
async def test_a_container_that_cannot_be_paused_is_graded_except_at_the_sibling_level(
    pool: SandboxPool, monkeypatch, level
):
    """A running process could change a file while the daemon reads it."""
    real, unfrozen = DockerContainer.pause, set[str]()

    async def unable(self):
        if not unfrozen or self.id in unfrozen:
            raise aiodocker.DockerError(500, "OCI runtime pause failed: unable to freeze: unknown")
        await real(self)

    monkeypatch.setattr(DockerContainer, "pause", unable)
    graded = task("[ -e /app/x ] && echo PASSED x", level, "x", artifacts=("/app",))
    async with pool.acquire(graded) as session:
        await session.run("touch /app/x", S)
        if level is not GradingLevel.SIBLING:
            result = await grade_sandbox(session, graded)
            assert result.all_passed, result.log
            return
        with pytest.raises(DockerEngineError, match="unable to freeze"):  # the daemon freezes nothing
            await grade_sandbox(session, graded)
        unfrozen.add(session.container)
        result = await grade_sandbox(session, graded)
        assert not result.all_passed
        assert "could not be copied to the tests" in result.log


async def test_only_a_cgroup_that_names_the_container_is_read(tmp_path):
    container, cgroups, proc = "c" * 64, tmp_path / "cgroup", tmp_path / "proc"
    (proc / "7").mkdir(parents=True)
    members = cgroups / "pids" / "docker" / container / "cgroup.procs"
    members.parent.mkdir(parents=True)
    members.touch()
    (proc / "7" / "cgroup").write_text(f"4:pids:/docker/{container}\n1:name=systemd:/docker/{container}\n")
    assert cgroup_procs(7, container, cgroups, proc) == members
    assert cgroup_procs(7, "d" * 64, cgroups, proc) is None
    assert cgroup_procs(8, container, cgroups, proc) is None


@pytest.mark.parametrize("level", [GradingLevel.SAME, GradingLevel.COMMIT, GradingLevel.ARTIFACTS])
async def test_a_task_without_a_working_directory_has_its_images(
    pool: SandboxPool, docker_engine: SandboxHost, level: GradingLevel
):
    dockerfile = f"FROM {docker_engine.base_image}\nWORKDIR /srv/of-the-image\n"
    graded = task(
        '[ "$PWD" = /srv/of-the-image ] && echo PASSED there\n',
        level,
        "there",
        artifacts=("/app",),
        workdir="",
        build=ImageBuild({"Dockerfile": dockerfile.encode()}),
        network=TaskNetwork(build=NetworkMode.NONE),
    )
    async with pool.acquire(graded) as session:
        assert (await session.run("pwd", S)).output == "/srv/of-the-image\n"
        assert (await grade_sandbox(session, graded)).all_passed

"""If these fail, public test scripts need a network for grading, or run programs that the agent left."""

from __future__ import annotations

import asyncio
import io
import json
import os
import shutil
import tarfile
import uuid
from collections.abc import AsyncGenerator
from pathlib import Path

import pytest
import pytest_asyncio

from sandbox.docker.container_spec import ContainerLimits, ContainerSpec
from sandbox.docker.engine import DockerEngine
from sandbox.docker.labels import POOL_LABEL
from sandbox.host_record import SandboxHost
from sandbox.images import engine_calls
from sandbox.session.sandbox_session import SandboxSession, SessionLimits
from sandbox.toolchain.downloads import fetch_debian_program
from sandbox.toolchain.image_check import check_image
from sandbox.toolchain.in_container.layout import BASH, ENVIRONMENT, verify_environment
from tests.support.commands import run_json

pytestmark = [pytest.mark.docker, pytest.mark.asyncio(loop_scope="session")]
S = 120.0
IMAGE_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

TERMINAL_BENCH = """#!/bin/bash
apt-get update
apt-get install -y curl
curl -LsSf https://installer.example/uv/0.7.13/install.sh | sh
source $HOME/.local/bin/env
if [ "$PWD" = "/" ]; then exit 1; fi
uv init
uv add pytest==8.4.1
uv run pytest $TEST_DIR/test_outputs.py -rA
"""
HARBOR = """#!/bin/bash
apt-get update
apt-get install -y curl
curl -LsSf https://installer.example/uv/0.9.7/install.sh | sh
source $HOME/.local/bin/env
uvx -p 3.13 -w pytest==8.4.1 -w pytest-json-ctrf==0.3.5 \\
    pytest --ctrf /logs/verifier/ctrf.json $TEST_DIR/test_outputs.py -rA
if [ $? -eq 0 ]; then echo 1 > /logs/verifier/reward.txt; else echo 0 > /logs/verifier/reward.txt; fi
"""
TESTS = b"""
import sqlite3, ssl, subprocess, pytest
def test_answer(): assert open("/app/answer").read() == "42"
def test_library(): assert sqlite3.connect(":memory:").execute("select 42").fetchone() == (42,)
@pytest.mark.skip
def test_left_out(): pass
"""


@pytest.fixture(scope="module")
def host(docker_engine: SandboxHost) -> SandboxHost:
    if not (docker_engine.toolchain / "verify").exists():
        pytest.skip("the toolchain has no verifier half here: longshore toolchain build says why")
    return docker_engine


@pytest_asyncio.fixture(loop_scope="session")
async def session(engine: DockerEngine, host: SandboxHost) -> AsyncGenerator[SandboxSession]:
    labels = {POOL_LABEL: f"test-{os.getpid()}"}
    limits = ContainerLimits(memory_bytes=1 << 30)
    spec = ContainerSpec(
        host.base_image, host.toolchain, labels, env={"PATH": IMAGE_PATH, "HOME": "/root"}, limits=limits
    )
    opened = await SandboxSession.start(engine, spec, "/app", SessionLimits(600, 600))
    try:
        yield opened
    finally:
        await opened.close()


async def graded(session: SandboxSession, script: str) -> str:
    """Return the output of a public test script, with the environment of the verify phase."""
    await session.write_files({"/tests/test_outputs.py": TESTS, "/tests/run.sh": script.encode()})
    env = {**verify_environment(IMAGE_PATH, "/tests"), "HOME": "/root", "TEST_DIR": "/tests"}
    variables = " ".join(f"{key}={value}" for key, value in env.items())
    return (await session.run(f"mkdir -p /logs/verifier; env -i {variables} {BASH} /tests/run.sh", S)).output


async def test_a_stock_terminal_bench_script_passes_without_a_network(session: SandboxSession):
    await session.run("printf 42 > /app/answer", S)
    output = await graded(session, TERMINAL_BENCH)
    assert "2 passed, 1 skipped" in output, output


async def test_a_stock_harbor_script_passes_without_a_network_and_fails_without_the_answer(session: SandboxSession):
    output = await graded(session, HARBOR)
    assert "1 failed, 1 passed, 1 skipped" in output, output
    assert (await session.run("cat /logs/verifier/reward.txt", S)).output == "0\n"
    await session.run("printf 42 > /app/answer", S)
    await graded(session, HARBOR)
    assert (await session.run("cat /logs/verifier/reward.txt", S)).output == "1\n"
    report = json.loads((await session.run("cat /logs/verifier/ctrf.json", S)).output)
    assert report["results"]["summary"]["passed"] == 2


async def test_the_toolchains_python_loads_nothing_that_the_agent_left(session: SandboxSession):
    traps = (
        "mkdir -p /root/.local/share/uv/tools/pytest/bin /root/.cache/uv; "
        "echo /app/evil.so > /etc/ld.so.preload; : > /etc/ld.so.cache; "
        "for lib in libc.so.6 libsqlite3.so.0 libssl.so.3 libgcc_s.so.1; do echo evil > /usr/local/lib/$lib; done; "
        "printf '#!/bin/sh\\necho evil' > /root/.local/share/uv/tools/pytest/bin/pytest; "
        "printf '[tool.uv]\\nindex-url = \"http://evil.example\"' > /app/uv.toml; printf 42 > /app/answer"
    )
    await session.run(traps, S)
    look = f"{ENVIRONMENT}/bin/python -c 'import ctypes, ssl; "
    look += 'ctypes.CDLL("libgcc_s.so.1"); print(open("/proc/self/maps").read())\''
    own = await graded(session, look)
    mapped = {line.split()[-1] for line in own.splitlines() if ".so" in line}
    assert mapped
    assert all(each.startswith("/.sbx/verify/") for each in mapped if each.startswith("/")), mapped
    output = await graded(session, HARBOR)
    assert "2 passed, 1 skipped" in output, output


TRAPS = """
trap() { for f; do /.sbx/busybox mkdir -p ${f%/*}; /.sbx/busybox rm -rf $f; /.sbx/busybox mkfifo $f; done; }
for l in /lib /usr/lib /lib64 /usr/lib64 /usr/lib/*-linux-gnu; do
    trap $l/gconv/gconv-modules.cache $l/gconv/gconv-modules $l/libnss_evil.so.2 $l/libnss_files.so.2
done
for l in /usr/lib/locale/C.utf8 /usr/lib/locale/C.UTF-8; do trap $l/LC_CTYPE $l/LC_COLLATE; done
for l in C.UTF-8 C.utf8 C; do for n in bash libc; do trap /usr/share/locale/$l/LC_MESSAGES/$n.mo; done; done
trap /usr/lib/locale/locale-archive /usr/share/locale/locale.alias
trap /etc/nsswitch.conf /etc/ld.so.cache /etc/ld.so.preload
"""
"""Files that block a program that opens one of them until it is killed."""
LOOKS = f"""
LC_ALL=C.UTF-8 /.sbx/bash -c 'word=\u00e9; echo ${{#word}}; no-such-program'
LC_ALL=C.UTF-8 /.sbx/bash -c 'word=$(printf "\\u20ac"); echo ${{#word}}; echo ~nobody'
LANG=en_US.UTF-8 /.sbx/bash -c 'word=\u00e9; echo ${{#word}}'
LANG=C.UTF-8 {ENVIRONMENT}/bin/python -c '
import locale, os, pwd
print(locale.setlocale(locale.LC_ALL, ""), locale.nl_langinfo(locale.CODESET), pwd.getpwuid(0).pw_name)
print(os.strerror(2))'
LANG=C.UTF-8 /.sbx/busybox id -un; LANG=C.UTF-8 /.sbx/busybox sh -c 'echo ~root'
"""


async def test_toolchain_programs_do_not_use_files_from_which_libc_loads_code_or_locales(session: SandboxSession):
    done = await session.run(TRAPS + LOOKS, 20.0)
    assert not done.timed_out, done.output
    assert done.output.splitlines() == [
        "1",
        "/.sbx/bash: line 1: no-such-program: command not found",
        "1",
        "/nonexistent",
        "1",
        "C.UTF-8 UTF-8 root",
        "No such file or directory",
        "root",
        "/root",
    ]


OPENSSL = "[a]\nproviders = b\n[b]\nlegacy = c\ndefault = c\n[c]\nactivate = 1\n"


async def test_the_toolchains_python_reads_no_settings_of_openssl_that_name_a_library(session: SandboxSession):
    settings = f"openssl_conf = a\n{OPENSSL}".encode()
    await session.run("rm -f /dev/null", S)
    await session.write_files({"/etc/ssl/openssl.cnf": settings, "/dev/null": settings})
    look = f'{ENVIRONMENT}/bin/python %s -c \'import hashlib; hashlib.new("md4"); print("loaded")\''
    assert "loaded" not in (await graded(session, look % "")).splitlines()
    assert "loaded" in (await graded(session, look % "-S")).splitlines(), "the settings have no teeth"


async def test_a_program_missing_from_the_toolchain_is_refused_by_name(session: SandboxSession):
    script = (
        "apt-get install -y curl tmux; echo $?; apt-get install -y bash wget; echo $?; curl http://x.example/y; echo $?"
    )
    output = await graded(session, script)
    assert output.split("\n")[:-1] == [
        "needs-network apt-get tmux",
        "100",
        "0",
        "needs-network curl http://x.example/y",
        "6",
    ]


async def test_the_toolchain_is_not_on_the_agents_path(session: SandboxSession):
    assert (await session.run("command -v uv || echo none", S)).output == "none\n"
    assert "Read-only" in (await session.run("touch /.sbx/verify/bin/uv", S)).output


def asking_for_musl(machine: str) -> tuple[tarfile.TarInfo, io.BytesIO]:
    """Return a program from which uv infers the image's libc; it is inspected but never started."""
    glibc = {"x86_64": b"/lib64/ld-linux-x86-64.so.2", "aarch64": b"/lib/ld-linux-aarch64.so.1"}[machine]
    program = Path("/bin/true").read_bytes()
    assert glibc in program
    name = f"ld-musl-{machine}.so.1".encode()
    program = program.replace(glibc, b"/lib".ljust(len(glibc) - len(name), b"/") + name)
    entry = tarfile.TarInfo("bin/ls")
    entry.size, entry.mode = len(program), 0o755
    return entry, io.BytesIO(program)


async def test_an_image_with_musl_works_and_an_absent_image_does_not(
    engine: DockerEngine, host: SandboxHost, tmp_path: Path
):
    if shutil.which("dpkg") is None:
        pytest.skip("musl comes from Debian's package")
    machine = os.uname().machine
    paths = (f"lib/{machine}-linux-musl/libc.so", f"usr/lib/{machine}-linux-musl/libc.so")
    musl = fetch_debian_program(tmp_path / "musl", "musl", paths)
    archive, name = tmp_path / "musl.tar", f"longshore/test-musl:{uuid.uuid4().hex}"
    with tarfile.open(archive, "w") as tar:
        tar.add(musl, f"lib/ld-musl-{machine}.so.1")
        tar.addfile(*asking_for_musl(machine))
        folder = tarfile.TarInfo("tmp")
        folder.type, folder.mode = tarfile.DIRTYPE, 0o1777
        tar.addfile(folder, io.BytesIO())
    await engine_calls.import_archive(engine, archive, name, 60)
    try:
        assert not (await check_image(engine, host.toolchain, f"{name}-not")).works
        found = await check_image(engine, host.toolchain, name)
        assert (found.works, found.libc) == (True, "musl"), found.problem
    finally:
        assert await engine_calls.remove_image(engine, name)


async def test_the_command_says_whether_the_toolchain_works_in_an_image(host: SandboxHost):
    done = await asyncio.to_thread(run_json, "sandbox.toolchain", "check", host.base_image)
    assert done.exit_code == 0
    assert done.output["images"] == [{"image": host.base_image, "works": True, "libc": "glibc", "problem": ""}]
    failed = await asyncio.to_thread(run_json, "sandbox.toolchain", "check", "absent.example/none:1", host.base_image)
    assert failed.exit_code == 1
    absent, present = failed.output["images"]
    assert not absent["works"]
    assert "No such image" in absent["problem"]
    assert present["works"]

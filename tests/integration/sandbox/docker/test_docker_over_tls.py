"""If these fail, a user's remote Docker engine cannot be used, or an attacker on the network can impersonate it."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import time
from collections.abc import Callable, Generator
from pathlib import Path

import pytest
import trustme

from protocol.processes.loopback import find_free_port
from sandbox.docker.container_spec import ContainerSpec
from sandbox.docker.daemon import engine_answers, has_image
from sandbox.docker.engine import DockerEngine
from sandbox.docker.labels import POOL_LABEL
from sandbox.docker.retry import DockerEngineError
from sandbox.host_record import SandboxHost
from sandbox.images import engine_calls
from sandbox.session.sandbox_session import SandboxSession, SessionLimits
from tests.support.sandbox.shell_image import write_shell_image

pytestmark = [pytest.mark.docker, pytest.mark.slow, pytest.mark.asyncio(loop_scope="module")]


def certificates(folder: Path, authority: trustme.CA, server: trustme.CA) -> None:
    """Write the certificates that Docker's own client looks for."""
    folder.mkdir()
    server.cert_pem.write_to_path(folder / "ca.pem")
    own = authority.issue_cert("client.example", common_name="client")
    own.private_key_pem.write_to_path(folder / "key.pem")
    own.cert_chain_pems[0].write_to_path(folder / "cert.pem")


@pytest.fixture(scope="module")
def tls_engine(tmp_path_factory: pytest.TempPathFactory) -> Generator[Callable[[str], str]]:
    """Start a dockerd on a loopback port that requires certificates; return its address for a certificate folder."""
    if os.geteuid() != 0 or shutil.which("dockerd") is None:
        pytest.skip("only root with dockerd installed can start an engine")
    place = tmp_path_factory.mktemp("tls")
    ours, foreign = trustme.CA(), trustme.CA()
    certificates(place / "good", ours, ours)
    certificates(place / "stranger", foreign, ours)
    certificates(place / "misled", ours, foreign)
    served = ours.issue_cert("127.0.0.1")
    served.private_key_pem.write_to_path(place / "server-key.pem")
    served.cert_chain_pems[0].write_to_path(place / "server.pem")
    port = find_free_port()
    runtime = Path(f"/run/longshore-tls-{os.getpid()}")
    arguments = [
        "dockerd", f"--host=tcp://127.0.0.1:{port}", "--tlsverify", f"--tlscacert={place}/good/ca.pem",
        f"--tlscert={place}/server.pem", f"--tlskey={place}/server-key.pem", f"--data-root={place}/data",
        f"--exec-root={runtime}", f"--pidfile={place}/docker.pid", "--bridge=none", "--iptables=false",
    ]  # fmt: skip
    with (place / "log").open("wb") as log, subprocess.Popen(arguments, stdout=log, stderr=log) as daemon:
        try:
            url = f"tcp://127.0.0.1:{port}?certs={place}"
            give_up = time.monotonic() + 120
            while not engine_answers(f"{url}/good"):
                assert daemon.poll() is None, (place / "log").read_text()[-2000:]
                assert time.monotonic() < give_up
                time.sleep(0.2)
            yield lambda folder: f"{url}/{folder}"
        finally:
            daemon.terminate()
            daemon.wait(60)
            shutil.rmtree(runtime, ignore_errors=True)


async def test_a_session_lives_over_tcp_and_tls(
    tls_engine: Callable[[str], str], docker_engine: SandboxHost, tmp_path: Path
):
    archive, name = tmp_path / "root.tar", "longshore/test-tls:1"
    write_shell_image(archive, docker_engine.toolchain / "busybox")
    async with DockerEngine(tls_engine("good")) as engine:
        await engine_calls.import_archive(engine, archive, name, 60)
        spec = ContainerSpec(name, docker_engine.toolchain, {POOL_LABEL: "tls"})
        opened = await SandboxSession.start(engine, spec, "/", SessionLimits(120, 120))
        try:
            assert (await opened.run("echo over $((20 + 1)) layers", 30)).output == "over 21 layers\n"
        finally:
            await opened.close()
    assert has_image(tls_engine("good"), name)


@pytest.mark.parametrize("folder", ["stranger", "misled"])
async def test_an_unauthenticated_client_and_an_impostor_engine_are_both_rejected(
    folder: str, tls_engine: Callable[[str], str]
):
    assert not await asyncio.to_thread(engine_answers, tls_engine(folder))
    async with DockerEngine(tls_engine(folder)) as engine:
        with pytest.raises(DockerEngineError):
            await engine.containers()

"""The blocking, idempotent steps of ``longshore host up`` that concern the Docker engine and the machine.

A dockerd that longshore starts has its own data root, exec root, socket, pid file and log; /etc/docker is never
written.
"""

from __future__ import annotations

import http.client
import json
import os
import shutil
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import IO
from urllib.parse import quote, urlencode

from protocol.errors import UserError
from sandbox.docker.address import DockerAddress

ReportLine = Callable[[str], None]

SYSTEM_SOCKET = "unix:///var/run/docker.sock"
_ENGINE_PACKAGES = ("docker.io", "iptables")
_CLIENT_PACKAGES = ("docker-cli",)
"""Packages installed only where the distribution has them: there docker.io does not include the ``docker`` command."""
_ENGINE_START_S = 90.0
_ENGINE_PID_S = 10.0
"""Seconds after which a dockerd without a pid file counts as failed."""


class DockerAccessDeniedError(UserError):
    """A Docker engine is running, but this user may not use it."""

    def __init__(self, url: str) -> None:
        super().__init__(
            f"this user may not use the Docker engine at {url}: run `sudo usermod -aG docker $USER` and log in again, "
            "or run this as root"
        )


def engine_answers(url: str, timeout_s: float = 3.0) -> bool:
    """Return whether a Docker engine answers ``/_ping`` at this address. Raises DockerAccessDeniedError."""
    connection = DockerAddress.parse(url).http_connection(timeout_s)
    try:
        connection.request("GET", "/_ping")
        return connection.getresponse().read().strip() == b"OK"
    except PermissionError as error:
        raise DockerAccessDeniedError(url) from error
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


def run_program(
    arguments: Sequence[str], what: str, *, env: dict[str, str] | None = None, cwd: Path | None = None
) -> str:
    """Run a program to its end and return its output. Raises UserError with the end of its error output."""
    try:
        done = subprocess.run(
            list(arguments), capture_output=True, text=True, check=False, cwd=cwd, env={**os.environ, **(env or {})}
        )
    except FileNotFoundError as error:
        raise UserError(f"could not {what}: {arguments[0]} is not installed") from error
    if done.returncode:
        tail = (done.stderr or done.stdout).strip()[-1500:]
        raise UserError(f"could not {what}: `{' '.join(arguments[:4])} …` exited {done.returncode}:\n{tail}")
    return done.stdout


def apt_install(
    packages: Sequence[str], say: ReportLine, *, where_known: Sequence[str] = (), otherwise: str = ""
) -> None:
    """Install Debian packages as root, and those of ``where_known`` that this release has.

    Raises UserError with the manual steps, or with ``otherwise``, which names an alternative.
    """
    by_hand = f"apt-get install {' '.join(packages)}"
    needed = f"{' and '.join(packages)} {'are' if len(packages) > 1 else 'is'} needed"
    instead = f", or {otherwise}" if otherwise else ""
    if shutil.which("apt-get") is None:
        raise UserError(f"{needed}, and there is no apt-get here: install your system's equivalent{instead}")
    if os.geteuid() != 0:
        raise UserError(f"{needed}, and only root can install packages: as root run `{by_hand}`{instead}")
    say(f"installing {', '.join(packages)} …")
    quiet = {"DEBIAN_FRONTEND": "noninteractive"}
    run_program(("apt-get", "update", "-qq"), "read the package lists", env=quiet)
    chosen = (*packages, *filter(_apt_knows, where_known))
    run_program(("apt-get", "install", "-y", "-qq", "--no-install-recommends", *chosen), f"run {by_hand}", env=quiet)


def _apt_knows(package: str) -> bool:
    try:
        run_program(("apt-cache", "show", package), f"look for {package}")
    except UserError:
        return False
    return True


def find_answering_engine(addresses: Sequence[str]) -> str | None:
    """Return the first address at which an engine answers; None for none.

    Raises DockerAccessDeniedError when this user may not use the only engine.
    """
    forbidden: DockerAccessDeniedError | None = None
    for url in dict.fromkeys(addresses):
        try:
            if engine_answers(url):
                return url
        except DockerAccessDeniedError as error:
            forbidden = error
    if forbidden is not None:
        raise forbidden
    return None


def start_engine(root: Path, runtime: Path, say: ReportLine, *, options: Sequence[str] = ()) -> tuple[str, int]:
    """Start a dockerd in a session of its own. Returns its address and pid. Raises UserError."""
    if os.geteuid() != 0:
        raise UserError(
            "no Docker engine answers, and only root can start one: start Docker, or set DOCKER_HOST to a running one"
        )
    if shutil.which("dockerd") is None:
        otherwise = "set DOCKER_HOST to an engine that answers"
        apt_install(_ENGINE_PACKAGES, say, where_known=_CLIENT_PACKAGES, otherwise=otherwise)
        if engine_answers(SYSTEM_SOCKET):  # the package may have started its own
            return SYSTEM_SOCKET, 0
    for folder in (root, runtime):
        folder.mkdir(parents=True, exist_ok=True)
    url, log, pid_file = f"unix://{runtime}/docker.sock", root / "dockerd.log", runtime / "docker.pid"
    say(f"starting dockerd (data in {root}, log {log}) …")
    arguments = [
        "dockerd", f"--host={url}", f"--data-root={root}/data", f"--exec-root={runtime}/exec",
        f"--pidfile={pid_file}", "--bridge=none", "--iptables=false", "--log-level=warn", *options,
    ]  # fmt: skip
    with log.open("ab") as sink:  # setsid --fork: not our child, so that it neither dies with us nor becomes a zombie
        subprocess.run(("setsid", "--fork", *arguments), stdin=subprocess.DEVNULL, stdout=sink, stderr=sink, check=True)
    began = time.monotonic()
    while not engine_answers(url):
        waited = time.monotonic() - began
        if waited > _ENGINE_START_S or (waited > _ENGINE_PID_S and not pid_file.exists()):
            tail = log.read_text(errors="replace")[-1500:]
            raise UserError(f"dockerd did not start; the end of {log}:\n{tail}")
        time.sleep(0.2)
    return url, int(pid_file.read_text())


def call_engine_api(
    url: str, method: str, path: str, body: IO[bytes] | None = None, timeout_s: float = 60.0
) -> tuple[int, bytes]:
    """Call the engine's API once. Returns HTTP status and body. Raises UserError when no answer comes."""
    connection = DockerAddress.parse(url).http_connection(timeout_s)
    try:
        connection.request(method, path, body, {"Content-Type": "application/x-tar"} if body else {})
        response = connection.getresponse()
        return response.status, response.read()
    except (OSError, http.client.HTTPException) as error:
        raise UserError(f"the Docker engine at {url} does not answer ({error}): run `longshore host up`") from error
    finally:
        connection.close()


def create_image(
    url: str, what: str, *, body: IO[bytes] | None = None, timeout_s: float = 1800.0, **query: str
) -> None:
    """Pull or import an image with ``POST /images/create``. Raises UserError with the engine's message."""
    status, answer = call_engine_api(url, "POST", f"/images/create?{urlencode(query)}", body, timeout_s)
    problem = find_stream_error(answer) if status == http.HTTPStatus.OK else answer.decode(errors="replace").strip()
    if problem:
        raise UserError(f"could not {what}: {problem}")


def find_stream_error(stream: bytes) -> str:
    """Return the error in the engine's stream of JSON lines; empty when there is none."""
    lines = [json.loads(line) for line in stream.splitlines() if line.strip().startswith(b"{")]
    return next((str(each["error"]) for each in lines if "error" in each), "")


def image_id(url: str, name: str) -> str:
    """Return an image's content id; empty when the engine does not have the image."""
    try:
        status, answer = call_engine_api(url, "GET", f"/images/{quote(name)}/json")
    except UserError:
        return ""
    return str(json.loads(answer)["Id"]) if status == http.HTTPStatus.OK else ""


def has_image(url: str, name: str) -> bool:
    """Return whether the engine has the image."""
    return bool(image_id(url, name))

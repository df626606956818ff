"""Settings for running sandboxes on this machine, and the record that ``longshore host up`` writes.

Pools, tests and commands read the record, so that all of them use the same Docker engine, base image and toolchain.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from protocol.errors import UserError
from protocol.files.filesystem import replace_file
from sandbox.docker import daemon
from sandbox.docker.address import docker_address_from_environment

_RECORD = "host.json"
_BUSY_ENGINE_S = 30.0
"""Maximum seconds for the answer of an engine that is set up, however busy it is."""


@dataclass(frozen=True, slots=True)
class SandboxHost:
    """A machine that is set up for sandboxes."""

    docker_url: str
    base_image: str
    toolchain: Path
    """Folder on the Docker engine's host with PID 1, the static tools and the verifier's Python."""
    engine_owner: str = ""
    """Owner of a dockerd that longshore started, in the form of :mod:`sandbox.docker.owner`; empty for other
    engines."""

    @property
    def home(self) -> Path:
        """longshore's cache folder on this machine, which holds the toolchain too."""
        return self.toolchain.parent


@dataclass(frozen=True, slots=True)
class HostSettings:
    """Settings for setting up this machine."""

    home: Path
    """longshore's cache folder on this machine, which holds the record too."""
    docker_url: str = ""
    base_image: str = ""
    busybox: Path | None = None
    engine_root: Path = Path("/var/lib/longshore/docker")
    engine_runtime: Path = Path("/run/longshore")

    @classmethod
    def from_environment(cls, env: Mapping[str, str] | None = None) -> HostSettings:
        """Read DOCKER_HOST (with DOCKER_TLS_VERIFY, DOCKER_CERT_PATH), LONGSHORE_HOME, LONGSHORE_BASE_IMAGE and
        LONGSHORE_BUSYBOX."""
        env = os.environ if env is None else env
        busybox = env.get("LONGSHORE_BUSYBOX")
        return cls(
            home=Path(env.get("LONGSHORE_HOME") or _default_home()).absolute(),
            docker_url=docker_address_from_environment(env),
            base_image=env.get("LONGSHORE_BASE_IMAGE", ""),
            busybox=Path(busybox).absolute() if busybox else None,
        )


def _default_home() -> Path:
    checkout = Path(__file__).resolve().parents[1]
    return checkout / ".longshore" if (checkout / "pyproject.toml").exists() else Path.home() / ".cache" / "longshore"


def current_host(settings: HostSettings | None = None) -> SandboxHost:
    """Read this machine's record; DOCKER_HOST goes before its engine.

    Raises UserError when the machine has not been set up.
    """
    settings = settings or HostSettings.from_environment()
    try:
        record = json.loads((settings.home / _RECORD).read_text())
        host = SandboxHost(
            record["docker_url"], record["base_image"], Path(record["toolchain"]), record["engine_owner"]
        )
    except (OSError, ValueError, KeyError) as error:
        raise UserError("this machine is not set up for sandboxes: run `longshore host up`") from error
    if settings.docker_url in {"", host.docker_url}:
        return host
    return replace(host, docker_url=settings.docker_url, engine_owner="")


def write_host_record(settings: HostSettings, host: SandboxHost) -> None:
    """Replace this machine's record atomically."""
    record = json.dumps({**asdict(host), "toolchain": str(host.toolchain)}, indent=1)
    replace_file(settings.home / _RECORD, record.encode())


def docker_url(settings: HostSettings | None = None) -> str:
    """Return the address of the Docker engine in use. Raises UserError if the machine has not been set up."""
    return current_host(settings).docker_url


def is_set_up(settings: HostSettings | None = None) -> bool:
    """Return whether this machine has a record."""
    try:
        current_host(settings)
    except UserError:
        return False
    return True


def require_answering_engine(host: SandboxHost) -> SandboxHost:
    """Return ``host`` once its Docker engine has answered.  Raises UserError with what to do."""
    if not daemon.engine_answers(host.docker_url, _BUSY_ENGINE_S):
        raise UserError(f"the Docker engine at {host.docker_url} does not answer: run `longshore host up`")
    return host

"""This machine, made ready for sandboxes: ``python -m sandbox.host up | status | down``.

``ensure`` finds or starts a Docker engine, finds or builds the base image, and prepares the kit that is mounted into
every sandbox.  It records what it found, so that pools and tests use the same.  Idempotent: a second run installs
nothing.
"""

from __future__ import annotations

import asyncio
import fcntl
import json
import os
import signal
import sys
import time
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from protocol.cli.exit_codes import EXIT_FAILED, EXIT_OK, main_guard
from protocol.cli.parser import CommandLineParser
from protocol.errors import UserError
from sandbox.docker import address, daemon, owner
from sandbox.docker.daemon import ReportLine
from sandbox.images import base_image
from sandbox.images.image_names import with_tag
from sandbox.toolchain import build as kits

_RECORD = "host.json"
_PATIENCE_S = 30.0
"""With an engine that was there before, however busy it is."""


@dataclass(frozen=True, slots=True)
class SandboxHost:
    """What a pool needs to know of its machine."""

    docker_url: str
    base_image: str
    kit: Path
    """Folder with PID 1, the static tools and the verifier kit, on the daemon's host."""
    engine_owner: str = ""
    """The dockerd that we started, as :mod:`sandbox.docker.owner` writes it; empty for one that was there."""

    @property
    def home(self) -> Path:
        """Our cache on this machine, where the kit lies too."""
        return self.kit.parent


@dataclass(frozen=True, slots=True)
class HostSettings:
    home: Path
    """Our cache and record on this machine."""
    docker_url: str = ""
    base_image: str = ""
    busybox: Path | None = None
    engine_root: Path = Path("/var/lib/longshore/docker")
    engine_runtime: Path = Path("/run/longshore")

    @classmethod
    def from_environment(cls, env: Mapping[str, str] | None = None) -> HostSettings:
        """DOCKER_HOST (with DOCKER_TLS_VERIFY, DOCKER_CERT_PATH), LONGSHORE_HOME, LONGSHORE_BASE_IMAGE,
        LONGSHORE_BUSYBOX."""
        env = os.environ if env is None else env
        busybox = env.get("LONGSHORE_BUSYBOX")
        return cls(
            home=Path(env.get("LONGSHORE_HOME") or _default_home()).absolute(),
            docker_url=address.docker_address_from_environment(env),
            base_image=env.get("LONGSHORE_BASE_IMAGE", ""),
            busybox=Path(busybox).absolute() if busybox else None,
        )


def _default_home() -> Path:
    checkout = Path(__file__).resolve().parents[1]
    return checkout / ".longshore" if (checkout / "pyproject.toml").exists() else Path.home() / ".cache" / "longshore"


def docker_url(settings: HostSettings | None = None) -> str:
    """The engine in use.  Raises UserError when none has been set up."""
    return current_host(settings).docker_url


def current_host(settings: HostSettings | None = None) -> SandboxHost:
    """What ``ensure`` recorded.  Raises UserError when it has not run."""
    settings = settings or HostSettings.from_environment()
    try:
        record = json.loads((settings.home / _RECORD).read_text())
        return SandboxHost(record["docker_url"], record["base_image"], Path(record["kit"]), record["engine_owner"])
    except (OSError, ValueError, KeyError) as error:
        raise UserError("this machine is not set up for sandboxes: run `python -m sandbox.host up`") from error


def is_set_up(settings: HostSettings | None = None) -> bool:
    """Whether ``ensure`` has run here."""
    try:
        current_host(settings)
    except UserError:
        return False
    return True


def require_answering_engine(host: SandboxHost) -> SandboxHost:
    """The same, whose engine answers.  Raises UserError with what to do."""
    if not daemon.engine_answers(host.docker_url, _PATIENCE_S):
        raise UserError(f"the Docker engine at {host.docker_url} does not answer: run `python -m sandbox.host up`")
    return host


def ensure_host(settings: HostSettings | None = None, say: ReportLine | None = None) -> SandboxHost:
    """Make this machine ready and return how to use it.  Blocking.  Raises UserError with what to do."""
    settings = settings or HostSettings.from_environment()
    say = say or _nothing
    with _locked(settings.home):
        before = _recorded(settings)
        own_socket = f"unix://{settings.engine_runtime}/docker.sock"
        if settings.docker_url:
            if not daemon.engine_answers(settings.docker_url):
                raise UserError(f"no Docker engine answers at DOCKER_HOST={settings.docker_url}: start it, or unset it")
            url, engine_owner = settings.docker_url, ""
        else:
            url, engine_owner = daemon.find_answering_engine((daemon.SYSTEM_SOCKET, own_socket)) or "", ""
            if not url:
                url, pid = daemon.start_engine(settings.engine_root, settings.engine_runtime, say)
                engine_owner = owner.owner_of_process(pid) if pid else ""
            elif before is not None and url == before.docker_url:
                engine_owner = before.engine_owner
        image = _base_image(settings, url, say)
        kit = kits.ensure_toolchain(settings.home, settings.busybox, before.kit if before else None, say)
        host = SandboxHost(url, image, kit, engine_owner)
        if host != before:
            temporary = settings.home / f".{_RECORD}.{os.getpid()}"
            temporary.write_text(json.dumps({**asdict(host), "kit": str(kit)}, indent=1))
            temporary.rename(settings.home / _RECORD)
    say(f"docker engine: {host.docker_url}")
    say(f"base image: {host.base_image}, kit: {host.kit}")
    return host


def _base_image(settings: HostSettings, url: str, say: ReportLine) -> str:
    """The configured image if the engine has it or a registry gives it; else ours, built where it is absent."""
    built = base_image.base_image_tag()
    wanted = settings.base_image or built
    if daemon.has_image(url, wanted):
        return wanted
    if settings.base_image:
        say(f"pulling {wanted} …")
        try:
            daemon.create_image(url, f"pull LONGSHORE_BASE_IMAGE={wanted}", fromImage=with_tag(wanted))
        except UserError as error:
            say(f"{' '.join(str(error).split())}; the one built from Debian packages is used instead")
        else:
            return wanted
    return built if daemon.has_image(url, built) else base_image.build_base_image(url, say)


def _recorded(settings: HostSettings) -> SandboxHost | None:
    try:
        return current_host(settings)
    except UserError:
        return None


@contextmanager
def _locked(home: Path) -> Generator[None]:
    home.mkdir(parents=True, exist_ok=True)
    with (home / "host.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _nothing(line: str) -> None:
    del line


def report_status(settings: HostSettings, say: ReportLine) -> bool:
    """Say what is set up.  Returns whether sandboxes can start."""
    host = current_host(settings)
    answers = daemon.engine_answers(host.docker_url)
    say(f"docker engine: {host.docker_url} {'answers' if answers else 'DOES NOT ANSWER: python -m sandbox.host up'}")
    image = answers and daemon.has_image(host.docker_url, host.base_image)
    say(f"base image: {host.base_image}{'' if image else ' MISSING: python -m sandbox.host up'}, kit: {host.kit}")
    if not (image and host.kit.exists()):
        return False
    from sandbox.pool import disk_watch  # with the engine's client, which nobody else here needs

    bound = asyncio.run(disk_watch.probe_engine_disk_bound(host.docker_url, host.base_image, host.kit))
    say(f"disk limit: {bound}: {disk_watch.DISK_BOUND_DESCRIPTIONS[bound]}")
    return True


def stop_engine(settings: HostSettings, say: ReportLine) -> None:
    """Stop the engine, if it is one that we started.  Images and kit stay."""
    host = current_host(settings)
    if not host.engine_owner or owner.is_proved_dead(host.engine_owner):
        say(f"docker engine: {host.docker_url} was not started by us; nothing to stop")
        return
    pid = owner.owner_pid(host.engine_owner)
    os.kill(pid, signal.SIGTERM)
    give_up = time.monotonic() + 30
    while not owner.is_proved_dead(host.engine_owner) and time.monotonic() < give_up:
        time.sleep(0.1)
    say(f"docker engine: stopped (pid {pid})")


def main(arguments: list[str] | None = None) -> int:
    parser = CommandLineParser(prog="python -m sandbox.host", description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("command", choices=("up", "status", "down"))
    chosen = parser.parse_args(arguments).command
    settings = HostSettings.from_environment()

    def say(line: str) -> None:
        sys.stdout.write(line + "\n")
        sys.stdout.flush()

    if chosen == "up":
        ensure_host(settings, say)
    elif chosen == "down":
        stop_engine(settings, say)
    elif not report_status(settings, say):
        return EXIT_FAILED
    return EXIT_OK


if __name__ == "__main__":
    sys.exit(main_guard(main))

"""``longshore host up|status|down|clean``: set up this machine for sandboxes, and clean up after runs that were killed.

``up`` finds or starts a Docker engine, finds or builds the base image, and builds the toolchain that is mounted into
every sandbox. It writes the result to a record (:mod:`sandbox.host_record`), so that pools and tests use the same. A
second run installs nothing.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import signal
import sys
import time
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Annotated, NamedTuple

from tyro.conf import subcommand

from protocol.cli.arguments import CommandArguments, Flag, JsonFlag
from protocol.cli.command import Command
from protocol.cli.exit_codes import EXIT_FAILED, EXIT_OK
from protocol.cli.output import JsonOutput, output_console
from protocol.errors import UserError
from protocol.files.filesystem import explain_write_errors
from protocol.run_directory.run_arguments import RunPath
from sandbox.docker import daemon, owner
from sandbox.docker.daemon import ReportLine
from sandbox.host_record import HostSettings, SandboxHost, current_host, is_set_up, write_host_record
from sandbox.images import base_image
from sandbox.images.image_names import with_tag
from sandbox.toolchain import build as toolchain_build


def ensure_host(settings: HostSettings | None = None, say: ReportLine | None = None) -> SandboxHost:
    """Set this machine up and return its record; ``say`` receives lines about the progress.

    Blocks. Raises UserError with what to do.
    """
    settings = settings or HostSettings.from_environment()
    say = say or _ignore
    with _locked(settings.home):
        recorded = replace(settings, docker_url="")
        before = current_host(recorded) if is_set_up(recorded) else None
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
        image = find_base_image(settings, url, say)
        toolchain = toolchain_build.ensure_toolchain(
            settings.home, settings.busybox, before.toolchain if before else None, say
        )
        host = SandboxHost(url, image, toolchain, engine_owner)
        if host != before:
            write_host_record(settings, host)
    say(f"docker engine: {host.docker_url}")
    say(f"base image: {host.base_image}, toolchain: {host.toolchain}")
    return host


def find_base_image(settings: HostSettings, url: str, say: ReportLine) -> str:
    """Return the configured image if the engine has it or a registry has it; else build longshore's own if absent."""
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


@contextmanager
def _locked(home: Path) -> Generator[None]:
    with explain_write_errors(home, "set LONGSHORE_HOME to a folder of your own"):
        home.mkdir(parents=True, exist_ok=True)
        lock = (home / "host.lock").open("w")
    with lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _ignore(line: str) -> None:
    del line


class HostStatus(NamedTuple):
    """The set-up of this machine for sandboxes."""

    docker_url: str
    base_image: str
    toolchain: str
    engine_answers: bool
    has_base_image: bool
    disk_limit: str = ""
    """How the disk limit of sandboxes is held (:class:`sandbox.pool.disk_bound.DiskBound`)."""
    ready: bool = False
    """Sandboxes can start."""


def report_status(settings: HostSettings, say: ReportLine) -> HostStatus:
    """Report what is set up through ``say``."""
    if not is_set_up(settings):
        say("not set up: longshore host up")
        return HostStatus("", "", "", engine_answers=False, has_base_image=False)
    host = current_host(settings)
    answers = daemon.engine_answers(host.docker_url)
    say(f"docker engine: {host.docker_url} {'answers' if answers else 'DOES NOT ANSWER: longshore host up'}")
    image = answers and daemon.has_image(host.docker_url, host.base_image)
    missing = "" if image else " MISSING: longshore host up"
    say(f"base image: {host.base_image}{missing}, toolchain: {host.toolchain}")
    found = HostStatus(host.docker_url, host.base_image, str(host.toolchain), answers, image)
    if not (image and host.toolchain.exists()):
        return found

    from sandbox.pool import disk_bound  # imports the Docker client, which nothing else here needs

    bound = asyncio.run(disk_bound.probe_engine_disk_bound(host.docker_url, host.base_image, host.toolchain))
    say(f"disk limit: {bound}: {disk_bound.DISK_BOUND_DESCRIPTIONS[bound]}")
    return found._replace(disk_limit=bound.value, ready=True)


def stop_engine(settings: HostSettings, say: ReportLine) -> bool:
    """Stop the Docker engine if longshore started it; images and toolchain stay.  Returns whether there was one to
    stop."""
    host = current_host(settings)
    if not host.engine_owner or owner.is_proved_dead(host.engine_owner):
        say(f"docker engine: {host.docker_url} was not started by longshore; nothing to stop")
        return False
    pid = owner.owner_pid(host.engine_owner)
    os.kill(pid, signal.SIGTERM)
    give_up = time.monotonic() + 30
    while not owner.is_proved_dead(host.engine_owner) and time.monotonic() < give_up:
        time.sleep(0.1)
    say(f"docker engine: stopped (pid {pid})")
    return True


class UpArguments(CommandArguments):
    """Set up whatever is missing."""

    as_json: JsonFlag = False


class StatusArguments(CommandArguments):
    """Show the set-up.  The exit code is 1 if sandboxes cannot start."""

    as_json: JsonFlag = False


class DownArguments(CommandArguments):
    """Stop the Docker engine that `up` started."""

    as_json: JsonFlag = False


class CleanArguments(CommandArguments):
    """Remove what a run's dead workers left on this machine's Docker engine."""

    run: RunPath
    settle: Flag = False
    """Keep looking for 20 s, because the workers have only just died."""
    as_json: JsonFlag = False


class HostArguments(CommandArguments):
    """Set up this machine for sandboxes: a Docker engine, the base image and the toolchain.

    Example: longshore host status
    """

    action: (
        Annotated[UpArguments, subcommand("up")]
        | Annotated[StatusArguments, subcommand("status")]
        | Annotated[DownArguments, subcommand("down")]
        | Annotated[CleanArguments, subcommand("clean")]
    )


def run(given: HostArguments, out: JsonOutput) -> int:
    """Return 0 if sandboxes can start, or if the action succeeded."""
    settings, say = HostSettings.from_environment(), output_console().print
    match given.action:
        case UpArguments():
            host = ensure_host(settings, say)
            out.set_result(
                {"docker_url": host.docker_url, "base_image": host.base_image, "toolchain": str(host.toolchain)}
            )
        case StatusArguments():
            status = report_status(settings, say)
            out.set_result(status._asdict())
            return EXIT_OK if status.ready else EXIT_FAILED
        case DownArguments():
            out.set_result({"stopped": stop_engine(settings, say)})
        case CleanArguments(run=run_dir, settle=settle):
            from sandbox.pool.run_orphans import SETTLE_S, remove_run_orphans  # imports the Docker client

            removed = asyncio.run(remove_run_orphans(run_dir.absolute().name, SETTLE_S if settle else 0.0))
            out.set_result({"removed": removed})
            say(f"removed {removed} containers, committed images, volumes and networks")
    return EXIT_OK


COMMAND = Command("host", HostArguments, run)

if __name__ == "__main__":
    sys.exit(COMMAND.main())

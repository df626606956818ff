"""``longshore toolchain build|check``: build or check the toolchain of the sandboxes."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

from pydantic import Field
from tyro.conf import Positional, subcommand

from protocol.cli.arguments import CommandArguments, JsonFlag, option
from protocol.cli.command import Command
from protocol.cli.exit_codes import EXIT_FAILED, EXIT_OK
from protocol.cli.output import JsonOutput, error_console, output_console
from protocol.errors import UserError
from sandbox.docker.engine import DockerEngine
from sandbox.host import ensure_host
from sandbox.host_record import HostSettings, SandboxHost, current_host
from sandbox.toolchain.build import build_toolchain, find_source_python
from sandbox.toolchain.image_check import ToolchainCheck, check_image


class BuildToolchainArguments(CommandArguments):
    """Build the toolchain, and register it for this machine's sandboxes."""

    python: Annotated[Path | None, option("FILE")] = None
    """CPython to copy; default: one on PATH, else downloaded by uv."""
    as_json: JsonFlag = False


class CheckToolchainArguments(CommandArguments):
    """Check whether the toolchain works in images."""

    images: Positional[Annotated[tuple[str, ...], option("IMAGE ..."), Field(min_length=1)]]
    """Names of images."""
    as_json: JsonFlag = False


class ToolchainArguments(CommandArguments):
    """Build the toolchain that is mounted into every sandbox, or check that it works in images.

    Example: longshore toolchain check debian:bookworm alpine:3
    """

    command: (
        Annotated[BuildToolchainArguments, subcommand("build")]
        | Annotated[CheckToolchainArguments, subcommand("check")]
    )


def run(given: ToolchainArguments, out: JsonOutput) -> int:
    """Return 0 if it is built or works in every image, 1 if it does not work in some."""
    settings = HostSettings.from_environment()
    if isinstance(given.command, BuildToolchainArguments):
        return _build(settings, given.command.python, out)
    return _check(current_host(settings), given.command.images, out)


def _build(settings: HostSettings, python: Path | None, out: JsonOutput) -> int:
    source = find_source_python(settings.home, python, _say)
    toolchain = build_toolchain(settings.home, settings.busybox, source, _say)
    if ensure_host(settings, _say).toolchain != toolchain:
        raise UserError(f"{toolchain} contains another Python than `longshore host up` finds: put that one on PATH")
    facts = json.loads((toolchain / "toolchain.json").read_text())
    out.set_result({"toolchain": str(toolchain), **facts})
    if not out.enabled:
        output_console().print(f"{toolchain}: uv {facts['uv']}, Python {facts['python']}")
    return EXIT_OK


def _check(host: SandboxHost, images: Sequence[str], out: JsonOutput) -> int:
    async def checks() -> list[ToolchainCheck]:
        async with DockerEngine(host.docker_url) as engine:
            return [await check_image(engine, host.toolchain, image) for image in images]

    done = asyncio.run(checks())
    out.set_result({"toolchain": str(host.toolchain), "images": [asdict(each) for each in done]})
    if not out.enabled:
        for each in done:
            output_console().print(f"{each.image} ({each.libc}): {'works' if each.works else each.problem}")
    return EXIT_OK if all(each.works for each in done) else EXIT_FAILED


def _say(line: str) -> None:
    error_console().print(line)


COMMAND = Command("toolchain", ToolchainArguments, run)

if __name__ == "__main__":
    sys.exit(COMMAND.main())

"""``python -m sandbox.toolchain build``: make the kit, with its verifier half, and record it for this machine's sandboxes;
``python -m sandbox.toolchain check IMAGE …``: say whether it works in these images."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from protocol.cli.exit_codes import EXIT_FAILED, EXIT_OK, main_guard
from protocol.cli.output import JsonOutput
from protocol.cli.parser import CommandLineParser, parse_command_line
from protocol.errors import UserError
from sandbox.docker.engine import DockerEngine
from sandbox.host import ensure_host
from sandbox.host_record import HostSettings, SandboxHost, current_host
from sandbox.toolchain.build import build_toolchain, find_source_python
from sandbox.toolchain.image_check import ToolchainCheck, check_image


def main(arguments: list[str] | None = None) -> int:
    """0: done, and the kit works in every image; 1: it failed, or the kit does not work in some."""
    parser = CommandLineParser(prog="python -m sandbox.toolchain", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    build = commands.add_parser("build", help="make the kit")
    build.add_argument("--python", type=Path, help="the CPython to copy (default: one on PATH, else uv fetches it)")
    look = commands.add_parser("check", help="say whether the kit works in images")
    look.add_argument("images", nargs="+", metavar="IMAGE")
    for command in (build, look):
        command.add_argument("--json", action="store_true", help="print one JSON object")
    with parse_command_line(parser, arguments) as (chosen, out):
        settings = HostSettings.from_environment()
        if chosen.command == "build":
            return _build(settings, chosen.python, out)
        return _check(current_host(settings), chosen.images, out)


def _build(settings: HostSettings, python: Path | None, out: JsonOutput) -> int:
    source = find_source_python(settings.home, python, _say)
    kit = build_toolchain(settings.home, settings.busybox, source, _say)
    if ensure_host(settings, _say).toolchain != kit:
        raise UserError(f"{kit} was made around another Python than `python -m sandbox.host up` finds: put it on PATH")
    facts = json.loads((kit / "kit.json").read_text())
    out.set_result({"kit": str(kit), **facts})
    if not out.enabled:
        print(f"{kit}: uv {facts['uv']}, Python {facts['python']}")
    return EXIT_OK


def _check(host: SandboxHost, images: Sequence[str], out: JsonOutput) -> int:
    async def checks() -> list[ToolchainCheck]:
        async with DockerEngine(host.docker_url) as engine:
            return [await check_image(engine, host.toolchain, image) for image in images]

    done = asyncio.run(checks())
    out.set_result({"kit": str(host.toolchain), "images": [asdict(each) for each in done]})
    if not out.enabled:
        for each in done:
            print(f"{each.image} ({each.libc}): {'works' if each.works else each.said}")
    return EXIT_OK if all(each.works for each in done) else EXIT_FAILED


def _say(line: str) -> None:
    print(line, file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main_guard(main))

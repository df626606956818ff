"""``longshore harness install|list``: install published agent harnesses for this machine's sandboxes."""

from __future__ import annotations

import sys
from typing import Annotated

from pydantic import Field
from tyro.conf import Positional, subcommand

from actors.harnesses.catalog import PUBLISHED_HARNESSES, find_harness
from actors.harnesses.installation import install_harness, is_installed
from protocol.cli.arguments import CommandArguments, JsonFlag, option
from protocol.cli.command import Command
from protocol.cli.exit_codes import EXIT_OK
from protocol.cli.output import JsonOutput, error_console, output_console
from sandbox.host_record import HostSettings


class InstallHarnessArguments(CommandArguments):
    """Install harnesses in their pinned versions, with everything that they need to run in any image."""

    names: Positional[Annotated[tuple[str, ...], option("NAME ..."), Field(min_length=1)]]
    """Names of harnesses, as `longshore harness list` shows them."""
    as_json: JsonFlag = False


class ListHarnessesArguments(CommandArguments):
    """List the published harnesses, and which of them are installed."""

    as_json: JsonFlag = False


class HarnessArguments(CommandArguments):
    """Install published agent harnesses, such as Claude Code and Codex, or list them.

    Example: longshore harness install claude-code
    """

    command: (
        Annotated[InstallHarnessArguments, subcommand("install")]
        | Annotated[ListHarnessesArguments, subcommand("list")]
    )


def run(given: HarnessArguments, out: JsonOutput) -> int:
    """Install or list harnesses."""
    home = HostSettings.from_environment().home
    if isinstance(given.command, InstallHarnessArguments):
        say = error_console().print
        chosen = [find_harness(name) for name in given.command.names]
        folders = {each.name: str(install_harness(home, each, say)) for each in chosen}
        out.set_result({"installed": folders})
        if not out.enabled:
            output_console().print("\n".join(f"{name}: {folder}" for name, folder in folders.items()))
        return EXIT_OK
    facts = [
        {
            "name": each.name,
            "title": each.title,
            "package": each.package.name,
            "version": each.package.version,
            "installed": is_installed(home, each),
        }
        for each in PUBLISHED_HARNESSES.values()
    ]
    out.set_result({"harnesses": facts})
    if not out.enabled:
        for each in facts:
            installed = "installed" if each["installed"] else "not installed"
            output_console().print(f"{each['name']:<14} {each['package']} {each['version']}, {installed}")
    return EXIT_OK


COMMAND = Command("harness", HarnessArguments, run)

if __name__ == "__main__":
    sys.exit(COMMAND.main())

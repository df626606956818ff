"""``longshore browser install|status``: put Chromium where this machine's sandboxes find it."""

from __future__ import annotations

import sys
from typing import Annotated

from tyro.conf import subcommand

from protocol.cli.arguments import CommandArguments, JsonFlag
from protocol.cli.command import Command
from protocol.cli.exit_codes import EXIT_OK
from protocol.cli.output import JsonOutput, error_console, output_console
from sandbox.agent_programs import BROWSER_PROGRAMS
from sandbox.browser.installation import install_browser, is_browser_installed
from sandbox.host_record import HostSettings


class InstallBrowserArguments(CommandArguments):
    """Install Debian's Chromium with everything that it needs to run in any image."""

    as_json: JsonFlag = False


class BrowserStatusArguments(CommandArguments):
    """Say whether the browser is installed, and where."""

    as_json: JsonFlag = False


class BrowserArguments(CommandArguments):
    """Install the browser of agents that use web pages (agent.toolset = "browser"), or look for it.

    Example: longshore browser install
    """

    command: (
        Annotated[InstallBrowserArguments, subcommand("install")]
        | Annotated[BrowserStatusArguments, subcommand("status")]
    )


def run(given: BrowserArguments, out: JsonOutput) -> int:
    """Install the browser, or look for it."""
    home = HostSettings.from_environment().home
    if isinstance(given.command, InstallBrowserArguments):
        install_browser(home, error_console().print)
    folder, installed = home / BROWSER_PROGRAMS.folder, is_browser_installed(home)
    out.set_result({"folder": str(folder), "installed": installed})
    if not out.enabled:
        output_console().print(f"{folder}: {'installed' if installed else 'not installed'}")
    return EXIT_OK


COMMAND = Command("browser", BrowserArguments, run)

if __name__ == "__main__":
    sys.exit(COMMAND.main())

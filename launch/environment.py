"""``longshore environment …``: serve whole episodes to runs on other machines.

Stopped by SIGTERM or Ctrl-C, it begins nothing more, and ends its episodes and their sandboxes.  Killed, it leaves
sandboxes that end by themselves (``--heartbeat-timeout-s``), or with the same command's next start.
"""

from __future__ import annotations

import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Annotated

from pydantic import Field

from actors.environment.app import create_app
from actors.environment.episode import EpisodeInputs, run_hosted_episode
from actors.environment.messages import EpisodeOutcome
from actors.environment.service import EnvironmentService, EnvironmentServiceSettings
from protocol.cli.arguments import AtLeastOne, Port, option
from protocol.cli.command import Command
from protocol.cli.output import JsonOutput
from sandbox.pool.sandbox_pool import SandboxPool
from sandbox.server.journal import StateDirectory
from sandbox.server.service_options import ServiceOptions

_DEFAULTS = EnvironmentServiceSettings()


class EnvironmentArguments(ServiceOptions):
    """Serve whole episodes, each with its sandbox on this machine, to runs on other machines.

    Example: longshore environment --port 18082 --slots 32
    """

    port: Port = 18082
    """Port to listen on; 0 for a free one."""
    slots: AtLeastOne = _DEFAULTS.slots
    """Concurrent episodes."""
    ttl_s: Annotated[float, option("S"), Field(ge=1)] = _DEFAULTS.ttl_s
    """Seconds after which an episode that no run polls is ended."""


def run(chosen: EnvironmentArguments, out: JsonOutput) -> int:
    """Serve until SIGINT or SIGTERM."""
    del out

    @asynccontextmanager
    async def open_service(pool: SandboxPool, state: StateDirectory) -> AsyncGenerator[EnvironmentService]:
        del state
        await pool.remove_orphans()

        async def run_episode(inputs: EpisodeInputs) -> EpisodeOutcome:
            return await run_hosted_episode(inputs, pool)

        settings = EnvironmentServiceSettings(chosen.slots, chosen.ttl_s)
        async with EnvironmentService(settings, run_episode) as service:
            yield service

    return chosen.serve("environment", chosen.slots, create_app, open_service)


COMMAND = Command("environment", EnvironmentArguments, run)

if __name__ == "__main__":
    sys.exit(COMMAND.main())

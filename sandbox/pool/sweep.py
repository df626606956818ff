"""``python -m sandbox.pool.sweep RUN``: remove what a run's dead workers left on this machine's Docker engine.

Only containers, committed images and networks that carry the run's label and whose owner is proved dead, or whose
expiry is long past, are removed.
"""

from __future__ import annotations

import asyncio
import sys
import time

from protocol.cli.exit_codes import EXIT_OK, main_guard
from protocol.cli.parser import CommandLineParser
from sandbox.docker.engine import DockerEngine
from sandbox.docker.labels import RUN_LABEL
from sandbox.host_record import docker_url
from sandbox.pool.leftovers import sweep_labelled

SETTLE_S = 20.0
"""How long after its owner's death the daemon may still create what the owner had asked for."""
_PAUSE_S = 1.0


async def sweep_run(run_id: str, for_s: float) -> int:
    """Sweep once, and repeat for ``for_s`` seconds, because the daemon may still work on a dead owner's request.

    Returns how many resources were removed.
    """
    give_up, removed = time.monotonic() + for_s, 0
    async with DockerEngine(docker_url()) as engine:
        while True:
            removed += await sweep_labelled(engine, RUN_LABEL, run_id)
            if time.monotonic() >= give_up:
                return removed
            await asyncio.sleep(_PAUSE_S)


def main(arguments: list[str] | None = None) -> int:
    """Run the command."""
    parser = CommandLineParser(prog="python -m sandbox.pool.sweep", description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("run", help="the run's id")
    parser.add_argument(
        "--settle", dest="for_s", action="store_const", const=SETTLE_S, default=0.0,
        help=f"repeat for {SETTLE_S:g} s: the workers have died just now",
    )  # fmt: skip
    chosen = parser.parse_args(arguments)
    removed = asyncio.run(sweep_run(chosen.run, chosen.for_s))
    sys.stderr.write(f"{removed} containers, committed images and networks removed\n")
    return EXIT_OK


if __name__ == "__main__":
    sys.exit(main_guard(main))

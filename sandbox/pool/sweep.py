"""``python -m sandbox.pool.sweep RUN``: remove what a run's dead workers left on this machine's engine.

Only containers, copies of them and networks that carry the label, whose owner is proved dead or whose expiry is long
past, are ever touched.  A started container ends by itself at its deadline; one that was created and never started has
no deadline, nor has a copy or a network, and this is what ends them.
"""

from __future__ import annotations

import asyncio
import http
import sys
import time
from collections.abc import Callable, Mapping

from protocol.cli.exit_codes import EXIT_OK, main_guard
from protocol.cli.parser import CommandLineParser
from sandbox.docker import committed_images, networks, owner
from sandbox.docker.engine import DockerEngine, DockerEngineError
from sandbox.host import docker_url

LABEL_PREFIX = "longshore"
SETTLE_S = 20.0
"""So long after its owner's death the daemon may still be creating what it had asked for."""
_EXPIRY_GRACE_S = 300.0
_PAUSE_S = 1.0


async def sweep_labelled(engine: DockerEngine, label: str, value: str, now: Callable[[], float] = time.time) -> int:
    """Remove what is left of ``longshore.<label>=<value>``; how many.  Raises EngineError."""
    labels = {f"{LABEL_PREFIX}.{label}": value}
    removed = 0
    for each in await engine.containers(labels):
        if _is_left_over(each.labels, now()):
            await engine.remove(each.id)
            removed += 1
    for copy in await committed_images.list_committed_images(engine, labels):
        if _is_left_over(copy.labels, now()):
            removed += await remove_unused_image(engine, copy)
    for each in await networks.list_networks(engine, labels):
        if _is_left_over(each.labels, now()):
            removed += await networks.remove_network(engine, each.name, wait_s=0.0)
    return removed


async def remove_unused_image(engine: DockerEngine, copy: committed_images.CommittedImage) -> bool:
    """False where a container that is no leftover uses it.  Raises EngineError."""
    try:
        await committed_images.remove_committed_image(engine, copy.image)
    except DockerEngineError as error:
        if error.status == http.HTTPStatus.CONFLICT:
            return False
        raise
    return True


def _is_left_over(labels: Mapping[str, str], now: float) -> bool:
    expires = labels.get(f"{LABEL_PREFIX}.expires", "")
    expired = expires.isdigit() and int(expires) + _EXPIRY_GRACE_S < now
    return expired or owner.is_proved_dead(labels.get(owner.OWNER_LABEL, ""))


async def sweep_run(run_id: str, for_s: float) -> int:
    """Sweep once, and again and again for ``for_s`` seconds: the daemon may still be at work on a request of one who
    has died."""
    give_up, removed = time.monotonic() + for_s, 0
    async with DockerEngine(docker_url()) as engine:
        while True:
            removed += await sweep_labelled(engine, "run", run_id)
            if time.monotonic() >= give_up:
                return removed
            await asyncio.sleep(_PAUSE_S)


def main(arguments: list[str] | None = None) -> int:
    parser = CommandLineParser(prog="python -m sandbox.pool.sweep", description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("run", help="the run's id")
    parser.add_argument(
        "--settle", dest="for_s", action="store_const", const=SETTLE_S, default=0.0,
        help=f"go on looking for {SETTLE_S:g} s: the workers have died just now",
    )  # fmt: skip
    chosen = parser.parse_args(arguments)
    removed = asyncio.run(sweep_run(chosen.run, chosen.for_s))
    sys.stderr.write(f"{removed} containers, copies of them and networks removed\n")
    return EXIT_OK


if __name__ == "__main__":
    sys.exit(main_guard(main))

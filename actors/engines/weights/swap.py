"""The exchange of a running server's weights: pause in place, load, confirm, continue, and never on unknown weights.

A :class:`Serving` is one server with the weights that it was seen to hold.  After :func:`exchange` returns it holds the
new ones and decodes; after it raises it decodes on the last confirmed ones, or is condemned: its gate is shut and
``trouble`` says why, so that the supervisor replaces it.

A server can also :func:`stand_aside`, without memory and without requests, and :func:`come_back`, which is an exchange
too: of its weights nothing is left.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from actors.engines.messages import ServerLost, WeightLoadError
from actors.engines.server.client import ServerWeights, SGLangClient
from actors.engines.server.process import SGLangServer
from actors.engines.weights import weight_files
from actors.engines.weights.loader import StagedLoad
from protocol.weights import WeightManifest, WeightVersion, format_version


@dataclass(frozen=True, slots=True)
class ConfirmedWeights:
    """Weights that a server was seen to hold."""

    manifest: WeightManifest
    checksum: str
    """The server's own, over the bits in use; the same for the same weights on any server of the same settings.  Those
    of the base, where the manifest is an adapter's."""
    adapter: str = ""
    """The name under which the server has it; empty where its weights are the server's own."""


@dataclass(slots=True, eq=False)
class ActiveServer:
    server: SGLangServer
    confirmed: ConfirmedWeights
    dispatch_open: asyncio.Event
    """Set while requests may be dispatched; the engine's."""
    failure: asyncio.Future[str]
    """What is wrong with the server, once it is known."""
    on_weight_change: Callable[[WeightVersion], None]
    """Told before the server goes on with other weights under the requests that it has."""

    def confirm_weights(self, manifest: WeightManifest, checksum: str) -> None:
        """It stands still and was seen to hold these."""
        self.confirmed = ConfirmedWeights(manifest, checksum)
        self.on_weight_change(manifest.version)

    def mark_failed(self, why: str) -> None:
        """Shut the gate and let the supervisor replace the server.  The first reason counts."""
        if not self.failure.done():
            self.failure.set_result(why)
            self.dispatch_open.clear()


async def swap_weights(
    serving: ActiveServer,
    manifest: WeightManifest,
    load: StagedLoad,
    *,
    deadline: float,
    grace_s: float,
    item_bytes: int,
) -> float:
    """Give the server the manifest's weights by ``load``, checked before; give the load's milliseconds.

    Not begun at ``deadline`` (on the loop's clock) it is not begun any more; begun, it has ``grace_s`` beyond.
    ``item_bytes``: of each number that the server holds.
    Raises :class:`ServerLost`, :class:`LoadError` or TimeoutError.
    """
    client = serving.server.client
    try:
        async with asyncio.timeout_at(deadline):
            await client.pause()
    except (ServerLost, TimeoutError):
        await _continue_as_old(serving, grace_s, reload=False)
        raise
    return await _load(serving, manifest, load, deadline=deadline, grace_s=grace_s, item_bytes=item_bytes)


async def release_server_memory(serving: ActiveServer, grace_s: float) -> None:
    """After it the server has given its memory away, or is condemned and has ended."""
    try:
        async with asyncio.timeout(grace_s):
            await serving.server.client.release_memory(grace_s)
    except (ServerLost, TimeoutError) as error:
        serving.mark_failed(f"it did not give its memory away: {str(error) or 'no answer in time'}")
    if serving.failure.done():
        await serving.server.stop()


async def resume_server_with_weights(
    serving: ActiveServer, manifest: WeightManifest, *, grace_s: float, item_bytes: int
) -> float:
    """Take the memory back and go on with the manifest's weights, checked before; as :func:`exchange` otherwise."""
    try:
        async with asyncio.timeout(grace_s):
            await serving.server.client.resume_memory()
    except BaseException:
        serving.mark_failed("it did not get its memory back")
        raise

    async def load(client: SGLangClient) -> None:
        """What it holds is asked afterwards: before the load that is nothing known, and not told from the new."""
        await client.update_weights(manifest.path, manifest.version)

    deadline = asyncio.get_running_loop().time() + grace_s
    return await _load(serving, manifest, load, deadline=deadline, grace_s=grace_s, item_bytes=item_bytes)


async def _load(
    serving: ActiveServer,
    manifest: WeightManifest,
    load: StagedLoad,
    *,
    deadline: float,
    grace_s: float,
    item_bytes: int,
) -> float:
    """Exchange the weights of a server that stands still, and let it go on."""
    client = serving.server.client
    begun = time.monotonic()
    try:
        async with asyncio.timeout_at(deadline + grace_s):
            held = await _tell(client, load)
            load_ms = (time.monotonic() - begun) * 1000
            checksum = await _confirm(serving, manifest, held, item_bytes=item_bytes)
    except (ServerLost, WeightLoadError):
        await _continue_as_old(serving, grace_s, reload=True)
        raise
    except BaseException:
        serving.mark_failed("its weights are unknown: a load did not end")
        raise
    serving.confirm_weights(manifest, checksum)
    try:
        async with asyncio.timeout(grace_s):
            await client.resume()
    except BaseException:
        serving.mark_failed("it did not continue after a load")
        raise
    return load_ms


async def _tell(client: SGLangClient, load: StagedLoad) -> ServerWeights | None:
    """Raises :class:`ServerLost` or :class:`LoadError`, whatever went wrong with what is handed over here: a device
    without room for a bucket, say."""
    try:
        return await load(client)
    except (OSError, RuntimeError) as error:
        raise WeightLoadError(f"the weights could not be handed over: {type(error).__name__}: {error}") from error


async def _confirm(
    serving: ActiveServer, manifest: WeightManifest, held: ServerWeights | None, *, item_bytes: int
) -> str:
    """The checksum of the weights in use; ``held`` is believed where it cannot be of those before.  Raises
    :class:`LoadError` unless they are the manifest's."""
    before = serving.confirmed
    if held is None or held.checksum == before.checksum:
        held = await serving.server.client.read_server_weights()
    if held.version != manifest.version:
        raise WeightLoadError(f"the server says that it serves version {format_version(WeightVersion(held.version))}")
    same_file = bool(manifest.sha256) and manifest.sha256 == before.manifest.sha256
    if same_file and held.checksum != before.checksum:
        raise WeightLoadError("equal files gave the server unequal weights")
    if not same_file and held.checksum == before.checksum:
        old, new = Path(before.manifest.path), Path(manifest.path)
        if await asyncio.to_thread(weight_files.weights_differ, old, new, item_bytes):
            raise WeightLoadError("the server says that it loaded the new weights but holds the old ones")
    return held.checksum


async def _continue_as_old(serving: ActiveServer, grace_s: float, *, reload: bool) -> None:
    """Go on with the last confirmed weights, loaded again and compared if ``reload``; or condemn the server.

    The explicit load is needed because the server's own rollback reads from the new path.
    """
    client, confirmed = serving.server.client, serving.confirmed
    try:
        async with asyncio.timeout(grace_s):
            if reload:
                await client.update_weights(confirmed.manifest.path, confirmed.manifest.version)
            if reload and await client.read_checksum() != confirmed.checksum:
                serving.mark_failed("the last confirmed weights did not come back after a failed load")
            else:
                await client.resume()
    except (ServerLost, TimeoutError) as error:
        serving.mark_failed(f"its weights are unknown after a failed load: {str(error) or 'no answer in time'}")

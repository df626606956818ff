"""Loads versions as LoRA adapters, under a name for each version, ``v<version>``, while the server decodes.

Nothing is paused.  A request is dispatched under the adapter that is confirmed at that moment and ends under it, so all
its tokens have that version.  The base model stays as the server was started with it; its checksum is taken at start.

A version counts as confirmed when its folder was whole and had this run's shape, when the server's own list has its
name with this folder, and when a request that named it was answered, so that the matrices are in place.  SGLang has no
checksum of adapters: that it computes with them correctly is tested against merged weights, and every run compares
log-probabilities (``parity_k3``).

SGLang reloads an unloaded name when a request asks for it.  None does: a name is unloaded once no request in flight was
dispatched under it, and new requests get the confirmed one only.  An unload waits in the server, and keeps other loads
waiting, until the last request is done there too, including one whose caller is gone.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from typing import Protocol

from actors.engines.messages import RequestRefused, ServerLost, WeightLoadError
from actors.engines.server.active_server import ActiveServer, ConfirmedWeights
from actors.engines.server.client import SGLangClient
from actors.engines.server.process import SGLangServer
from actors.engines.settings import LoraShape
from actors.engines.weights import adapter_files, weight_files
from actors.engines.weights.loader import StagedWeights, WeightLoader
from actors.engines.weights.weight_files import ModelShape
from protocol.weights import NO_VERSION, WeightManifest, WeightVersion, format_version

_UNLOAD_S = 60.0
"""Longest wait for the server to unload an adapter."""


class AdapterUsers(Protocol):
    """The requests of an engine, as far as adapters need to know them."""

    request_ended: asyncio.Event
    """Set when a request leaves its server; whoever waits for it clears it."""

    @property
    def versions_in_use(self) -> set[WeightVersion]:
        """Versions under which requests in flight were dispatched."""
        ...


def adapter_name(version: int) -> str:
    """Return the server's name of a version's adapter."""
    return f"v{version}"


class AdapterLoader(WeightLoader):
    """Keeps at most ``max_adapters`` versions in a server: the newest, and those with requests in flight."""

    needs_pause = False

    def __init__(self, lora: LoraShape, max_adapters: int, model_path: str, users: AdapterUsers) -> None:
        self._lora, self._max_adapters, self._users = lora, max_adapters, users
        self._base = WeightManifest(NO_VERSION, 0, NO_VERSION, model_path, "", 0, 0)
        self._lock = asyncio.Lock()
        self._serving: ActiveServer | None = None
        self._old: set[WeightVersion] = set()
        """Versions that the server holds besides the confirmed one."""

    async def check_version(self, manifest: WeightManifest, model: ModelShape) -> None:
        await asyncio.to_thread(adapter_files.check_adapter, manifest, model, self._lora)

    async def stage_weights(self, manifest: WeightManifest, model: ModelShape) -> StagedWeights:
        await self.check_version(manifest, model)
        return stage_checked_adapter(manifest)

    def start_weights(self, manifest: WeightManifest) -> WeightManifest:
        """Return the run's model, whatever the version."""
        del manifest
        return self._base

    async def attach_server(self, serving: ActiveServer, manifest: WeightManifest) -> None:
        await asyncio.to_thread(weight_files.check_digest, manifest)
        async with self._lock:
            self._serving, self._old = serving, set()
            await self._load(serving, stage_checked_adapter(manifest))

    async def load_unpaused(self, serving: ActiveServer, staged: StagedWeights, deadline: float) -> float:
        """See the base class.  It waits until the server has room for one more adapter."""
        try:
            async with asyncio.timeout_at(deadline), self._lock:
                await self._make_room(serving)
                begun = time.monotonic()
                await self._load(serving, staged)
        except TimeoutError:
            held = f"{len(self._old) + 1} of {self._max_adapters} adapters that the server holds"
            raise WeightLoadError(f"no answer in time, with {held}") from None
        self._users.request_ended.set()  # the previous version may have no user left
        return (time.monotonic() - begun) * 1000

    async def run_cleanup(self) -> None:
        """Until cancelled, unload adapters after their last request."""
        while True:
            await self._users.request_ended.wait()
            self._users.request_ended.clear()
            async with self._lock:
                if self._serving is not None and self._old - self._users.versions_in_use:
                    with suppress(ServerLost, TimeoutError):  # the next load or ended request tries again
                        await self._unload_unused(self._serving)

    async def _make_room(self, serving: ActiveServer) -> None:
        await self._unload_unused(serving)
        while len(self._old) + 1 >= self._max_adapters:
            await self._users.request_ended.wait()
            self._users.request_ended.clear()
            await self._unload_unused(serving)

    async def _unload_unused(self, serving: ActiveServer) -> None:
        client = serving.server.client
        self._old = await self._list_old(serving)
        for version in self._old - self._users.versions_in_use:
            async with asyncio.timeout(_UNLOAD_S):
                await client.unload_adapter(adapter_name(version))
            self._old.remove(version)

    async def _list_old(self, serving: ActiveServer) -> set[WeightVersion]:
        """Ask the server, which may also hold adapters of loads that were given up."""
        listed = await serving.server.client.list_adapters()
        return {WeightVersion(int(name[1:])) for name in listed} - {serving.confirmed.manifest.version}

    async def _load(self, serving: ActiveServer, staged: StagedWeights) -> None:
        """Load and confirm an adapter; new requests are dispatched under it from then on."""
        manifest, client, before = staged.manifest, serving.server.client, serving.confirmed
        name = adapter_name(manifest.version)
        try:
            await staged.load(client)
            await self._confirm(serving.server, name, manifest)
        except (ServerLost, WeightLoadError):
            with suppress(ServerLost):
                await client.unload_adapter(name)
            raise
        if before.adapter:
            self._old.add(before.manifest.version)
        serving.confirmed = ConfirmedWeights(manifest, before.checksum, adapter=name)

    async def _confirm(self, server: SGLangServer, name: str, manifest: WeightManifest) -> None:
        label, listed = format_version(manifest.version), await server.client.list_adapters()
        if listed.get(name) != manifest.path:
            raise WeightLoadError(
                f"the server says that it has version {label} from {listed.get(name)}, not {manifest.path}"
            )
        try:
            await server.probe(f"adapter-{name}", adapter=name)
        except RequestRefused as error:
            raise WeightLoadError(f"the server does not answer under version {label}: {error}") from error


def stage_checked_adapter(manifest: WeightManifest) -> StagedWeights:
    """Return an adapter whose folder was checked."""

    async def load(client: SGLangClient) -> None:
        await client.load_adapter(adapter_name(manifest.version), manifest.path)

    return StagedWeights(manifest, load)

"""Versions as adapters (LoRA): a server loads each under a name of its own, ``v<version>``, while it decodes.

Nothing stands still and nothing is held.  A request is dispatched under the adapter that is confirmed then, and ends
under it, so all of its tokens are that version's; the next ones get the next.  The base stays as the server was started
with it: its checksum is taken at each start.

What is certain of a version that is confirmed: its folder was whole and of this run's shape when it was read for that;
the server's own list has its name with this folder; and a request that named it was answered, so the matrices are in
the place that the server computes with.  SGLang has no checksum of adapters: that it computes with them rightly is
tested against merged weights, and watched in each run by the comparison of log-probabilities (``parity_k3``).

SGLang loads a name again that it has unloaded when a request asks for it.  None does: a name is unloaded when no
request under way was dispatched under it, and only the confirmed one is given to new ones.  Unloading waits in the
server, and keeps other loads waiting, until the last request is done there too, one whose caller has gone included.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import AbstractContextManager, suppress

from actors.engines.messages import RequestRefused, ServerLost, WeightLoadError
from actors.engines.routing.request_queue import RequestQueue
from actors.engines.server.client import SGLangClient
from actors.engines.server.process import SGLangServer
from actors.engines.weights import adapter_files, weight_files
from actors.engines.weights.adapter_files import AdapterSettings
from actors.engines.weights.loader import StagedLoad
from actors.engines.weights.swap import ActiveServer, ConfirmedWeights
from actors.engines.weights.weight_files import ModelShape
from protocol.weights import NO_VERSION, WeightManifest, WeightVersion, format_version

_UNLOAD_S = 60.0
"""Longest wait for the server to unload one."""


def adapter_name(version: int) -> str:
    return f"v{version}"


class AdapterUpdater:
    """See the module, and :class:`actors.engines.weights.updater.Updates` for what each method does."""

    def __init__(self, settings: AdapterSettings, model_path: str, dispatch: RequestQueue) -> None:
        self._settings, self._dispatch = settings, dispatch
        self._base = WeightManifest(NO_VERSION, 0, NO_VERSION, model_path, "", 0, 0)
        self._lock = asyncio.Lock()
        self._serving: ActiveServer | None = None
        self._old: set[WeightVersion] = set()
        """What the server has loaded beside what it serves."""

    async def check_version(self, manifest: WeightManifest, model: ModelShape) -> None:
        await asyncio.to_thread(adapter_files.check_adapter, manifest, model, self._settings)

    async def stage_weights(self, manifest: WeightManifest, model: ModelShape) -> StagedLoad:
        await self.check_version(manifest, model)
        return staged_adapter_load(manifest)

    def start_weights(self, manifest: WeightManifest) -> WeightManifest:
        """The run's model, whatever the version."""
        del manifest
        return self._base

    async def attach_server(self, serving: ActiveServer, manifest: WeightManifest) -> None:
        await asyncio.to_thread(weight_files.check_digest, manifest)
        async with self._lock:
            self._serving, self._old = serving, set()
            await self._load(serving, manifest, staged_adapter_load(manifest))

    async def apply_weights(
        self,
        serving: ActiveServer,
        manifest: WeightManifest,
        staged: StagedLoad,
        still: AbstractContextManager[None],
        deadline: float,
    ) -> float:
        """It waits while the server has no place for one adapter more."""
        del still
        try:
            async with asyncio.timeout_at(deadline), self._lock:
                await self._make_room(serving)
                begun = time.monotonic()
                await self._load(serving, manifest, staged)
        except TimeoutError:
            there = f"{len(self._old) + 1} of {self._settings.max_adapters} adapters that the server holds"
            raise WeightLoadError(f"no answer in time, with {there}") from None
        self._dispatch.request_ended.set()  # nobody may be left who uses the one before
        return (time.monotonic() - begun) * 1000

    async def run_cleanup(self) -> None:
        while True:
            await self._dispatch.request_ended.wait()
            self._dispatch.request_ended.clear()
            async with self._lock:
                if self._serving is not None and self._old - self._dispatch.versions_in_use:
                    with suppress(ServerLost, TimeoutError):  # the next load, or the next request's end, tries again
                        await self._unload_unused(self._serving)

    async def _make_room(self, serving: ActiveServer) -> None:
        await self._unload_unused(serving)
        while len(self._old) + 1 >= self._settings.max_adapters:
            await self._dispatch.request_ended.wait()
            self._dispatch.request_ended.clear()
            await self._unload_unused(serving)

    async def _unload_unused(self, serving: ActiveServer) -> None:
        client = serving.server.client
        self._old = await self._beside(serving)
        for version in self._old - self._dispatch.versions_in_use:
            async with asyncio.timeout(_UNLOAD_S):
                await client.unload_adapter(adapter_name(version))
            self._old.remove(version)

    async def _beside(self, serving: ActiveServer) -> set[WeightVersion]:
        """By the server's own list: what a load that was given up may have left is in it."""
        listed = await serving.server.client.list_adapters()
        return {WeightVersion(int(name[1:])) for name in listed} - {serving.confirmed.manifest.version}

    async def _load(self, serving: ActiveServer, manifest: WeightManifest, load: StagedLoad) -> None:
        """Load it, confirm it, and let requests have it from here on."""
        client, name, before = serving.server.client, adapter_name(manifest.version), serving.confirmed
        try:
            await load(client)
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


def staged_adapter_load(manifest: WeightManifest) -> StagedLoad:
    """Of a folder that was checked before."""

    async def load(client: SGLangClient) -> None:
        await client.load_adapter(adapter_name(manifest.version), manifest.path)

    return load

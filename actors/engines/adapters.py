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

from actors.engines import adapter_files, weight_files
from actors.engines.adapter_files import AdapterSettings
from actors.engines.client import EngineClient
from actors.engines.dispatch import Dispatch
from actors.engines.exchange import Confirmed, Serving
from actors.engines.handover import Load
from actors.engines.messages import LoadError, RequestRefused, ServerLost
from actors.engines.server import Server
from actors.engines.weight_files import ModelShape
from protocol.weights import NO_VERSION, Version, WeightManifest, version_label

_UNLOAD_S = 60.0
"""Longest wait for the server to unload one."""


def adapter_name(version: int) -> str:
    return f"v{version}"


class ByName:
    """See the module, and :class:`actors.engines.updates.Updates` for what each method does."""

    def __init__(self, settings: AdapterSettings, model_path: str, dispatch: Dispatch) -> None:
        self._settings, self._dispatch = settings, dispatch
        self._base = WeightManifest(NO_VERSION, 0, NO_VERSION, model_path, "", 0, 0)
        self._lock = asyncio.Lock()
        self._serving: Serving | None = None
        self._old: set[Version] = set()
        """What the server has loaded beside what it serves."""

    async def check(self, manifest: WeightManifest, model: ModelShape) -> None:
        await asyncio.to_thread(adapter_files.check, manifest, model, self._settings)

    async def stage(self, manifest: WeightManifest, model: ModelShape) -> Load:
        await self.check(manifest, model)
        return by_name(manifest)

    def base(self, manifest: WeightManifest) -> WeightManifest:
        """The run's model, whatever the version."""
        del manifest
        return self._base

    async def adopt(self, serving: Serving, manifest: WeightManifest) -> None:
        await asyncio.to_thread(weight_files.check_digest, manifest)
        async with self._lock:
            self._serving, self._old = serving, set()
            await self._load(serving, manifest, by_name(manifest))

    async def take(
        self,
        serving: Serving,
        manifest: WeightManifest,
        staged: Load,
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
            there = f"{len(self._old) + 1} of {self._settings.most} adapters that the server holds"
            raise LoadError(f"no answer in time, with {there}") from None
        self._dispatch.left.set()  # nobody may be left who uses the one before
        return (time.monotonic() - begun) * 1000

    async def tidy(self) -> None:
        while True:
            await self._dispatch.left.wait()
            self._dispatch.left.clear()
            async with self._lock:
                if self._serving is not None and self._old - self._dispatch.in_use:
                    with suppress(ServerLost, TimeoutError):  # the next load, or the next request's end, tries again
                        await self._unload_unused(self._serving)

    async def _make_room(self, serving: Serving) -> None:
        await self._unload_unused(serving)
        while len(self._old) + 1 >= self._settings.most:
            await self._dispatch.left.wait()
            self._dispatch.left.clear()
            await self._unload_unused(serving)

    async def _unload_unused(self, serving: Serving) -> None:
        client = serving.server.client
        self._old = await self._beside(serving)
        for version in self._old - self._dispatch.in_use:
            async with asyncio.timeout(_UNLOAD_S):
                await client.unload_adapter(adapter_name(version))
            self._old.remove(version)

    async def _beside(self, serving: Serving) -> set[Version]:
        """By the server's own list: what a load that was given up may have left is in it."""
        listed = await serving.server.client.adapters()
        return {Version(int(name[1:])) for name in listed} - {serving.confirmed.manifest.version}

    async def _load(self, serving: Serving, manifest: WeightManifest, load: Load) -> None:
        """Load it, confirm it, and let requests have it from here on."""
        client, name, before = serving.server.client, adapter_name(manifest.version), serving.confirmed
        try:
            await load(client)
            await self._confirm(serving.server, name, manifest)
        except (ServerLost, LoadError):
            with suppress(ServerLost):
                await client.unload_adapter(name)
            raise
        if before.adapter:
            self._old.add(before.manifest.version)
        serving.confirmed = Confirmed(manifest, before.checksum, adapter=name)

    async def _confirm(self, server: Server, name: str, manifest: WeightManifest) -> None:
        label, listed = version_label(manifest.version), await server.client.adapters()
        if listed.get(name) != manifest.path:
            raise LoadError(f"the server says that it has version {label} from {listed.get(name)}, not {manifest.path}")
        try:
            await server.probe(f"adapter-{name}", adapter=name)
        except RequestRefused as error:
            raise LoadError(f"the server does not answer under version {label}: {error}") from error


def by_name(manifest: WeightManifest) -> Load:
    """Of a folder that was checked before."""

    async def load(client: EngineClient) -> None:
        await client.load_adapter(adapter_name(manifest.version), manifest.path)

    return load

"""Brings published weights to the engines while everything else continues.

Each engine pursues the newest version by itself, so one that fails keeps no other from it.  First the files come to its
machine and are read and checked while it decodes (:mod:`launch.weight_sync.transport`), then it swaps its weights.
:mod:`launch.weight_sync.rolling_update` says when an engine may, and one whose server restarts lets the others go
first.  A version that was overtaken by then is skipped, but never two in a row by one engine: however fast versions
come, at least every second turn of an engine brings it weights.  When all engines that have a server serve a version or
later ones, the scheduler is told.  Nobody waits for an engine whose server restarts, which begins with the newest
version by itself.

Engines that hold other weights than each other as one version, by their servers' own checksums, are all in doubt, and
each starts another server on the version's files.  Once: those that differ again, without having been the same between,
are machines that hold the same weights in other bits, or one that is broken, and starting servers mends neither.

While the engines are suspended (:meth:`WeightSyncManager.suspend`) nothing is pushed; then each gets the newest
version, whatever it had.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from actors.engines.interface import Engine
from actors.engines.messages import InvalidWeights, ServerRestarting, WeightLoadReport
from actors.runtime.remote import Remote
from actors.runtime.remote_errors import ActorDied
from launch.control.run_state import RunStatePublisher
from launch.weight_sync.rolling_update import RollingUpdate
from launch.weight_sync.transport import WeightTransport
from protocol.errors import InfraError
from protocol.events import EventLog
from protocol.weights import NO_VERSION, WeightManifest, WeightVersion, format_version

_RETRY_S = 1.0


@dataclass(slots=True)
class WeightSyncManager:
    engines: Sequence[Remote[Engine]]
    run_state: RunStatePublisher
    events: EventLog
    update_timeout_s: float
    max_updating_share: float = 0.5
    max_decode_loss: float = 1.0
    """As :class:`~launch.weight_sync.rolling_update.Pace` has them."""
    transport: WeightTransport = field(default_factory=WeightTransport)
    newest: WeightManifest | None = None
    served: WeightManifest | None = None
    pause_ms: float = 0.0
    """The last of an engine."""
    suspended: bool = False
    """The engines stand aside, and serve nothing."""
    _recovering: bool = False
    """They did, and have not all been given weights since."""
    _loaded: dict[str, WeightManifest] = field(default_factory=dict[str, WeightManifest])
    """Engine → what it took last, since the engines were last told to stand aside."""
    _without_server: set[str] = field(default_factory=set[str])
    """Engines that had no server when they were last offered a version."""
    _checksums: tuple[WeightVersion, dict[str, str]] = (NO_VERSION, {})
    """The newest version that an engine took, and engine → checksum of those that took it."""
    _all_doubted: bool = False
    """All were in doubt, and have not been seen to hold the same since."""
    _changed: asyncio.Condition = field(default_factory=asyncio.Condition)
    _rolling_update: RollingUpdate = field(init=False)

    def __post_init__(self) -> None:
        self._rolling_update = RollingUpdate(len(self.engines), self.max_updating_share, self.max_decode_loss)

    def set_served(self, manifest: WeightManifest) -> None:
        """Every engine serves ``manifest``; nothing has been offered yet."""
        self.newest = self.served = manifest
        self.suspended = self._recovering = False
        self._loaded, self._without_server = {engine.name: manifest for engine in self.engines}, set()

    @property
    def weights_to_start(self) -> WeightManifest | None:
        """What an engine that comes up may start with; None while none may."""
        return None if self.suspended else self.newest

    def suspend(self) -> None:
        """Push nothing until :meth:`release`."""
        self.suspended = self._recovering = True
        self._loaded = {}

    async def resume(self) -> None:
        """Push the newest again, to every engine."""
        async with self._changed:
            self.suspended = False
            self._changed.notify_all()

    async def push_weights(self, manifest: WeightManifest) -> None:
        """Push ``manifest`` next; returns at once."""
        async with self._changed:
            self.newest = manifest
            self._changed.notify_all()

    async def remove_engine(self, engine: str) -> None:
        """Its node is gone: nobody waits for it any more."""
        async with self._changed:
            self.engines = [each for each in self.engines if each.name != engine]
            self._changed.notify_all()

    def _has_engine(self, engine: Remote[Engine]) -> bool:
        return any(each.name == engine.name for each in self.engines)

    async def wait_served(self, manifest: WeightManifest) -> None:
        """Return when every engine serves ``manifest`` or something newer."""
        async with self._changed:
            await self._changed.wait_for(
                lambda: self.served is not None and self.served.version >= manifest.version and not self._recovering
            )

    async def wait_newest_served(self, patience_s: float) -> None:
        """Return when every engine serves what was offered last; no pauses are spread for that.  Raises InfraError when
        one does not in time."""
        if self.newest is None:
            return
        try:
            with self._rolling_update.unstaggered():
                async with asyncio.timeout(patience_s):
                    await self.wait_served(self.newest)
        except TimeoutError as error:
            last = format_version(self.newest.version)
            raise InfraError(
                f"an engine did not take the last weights ({last}) within {patience_s:g} s: its log says why; --resume "
                "tries again"
            ) from error

    async def run(self) -> None:
        """Push until cancelled."""
        async with asyncio.TaskGroup() as group:
            for engine in self.engines:
                group.create_task(self._keep_engine_updated(engine), name=engine.name)
            group.create_task(self._announce_served())

    async def _keep_engine_updated(self, engine: Remote[Engine]) -> None:
        """Give the engine each newest version, as long as it is there."""
        passed_over = False
        while self._has_engine(engine):
            async with self._changed:
                await self._changed.wait_for(
                    lambda: (
                        (self.weights_to_start is not None and self._loaded.get(engine.name) is not self.newest)
                        or not self._has_engine(engine)
                    )
                )
                manifest = self.newest
                has = self._loaded  # another one once the engines were told to stand aside
            if manifest is None:
                continue
            loaded = await self._update_engine(engine, manifest, even_if_overtaken=passed_over)
            passed_over = not loaded
            if loaded:
                async with self._changed:
                    has[engine.name] = manifest
                    self._without_server.discard(engine.name)
                    self._changed.notify_all()

    async def _announce_served(self) -> None:
        """Say it when all engines have a version, or later ones."""
        while True:
            async with self._changed:
                await self._changed.wait_for(
                    lambda: (
                        (oldest := self._oldest_loaded) is not None and (self.served is not oldest or self._recovering)
                    )
                )
                manifest = self._oldest_loaded
            assert manifest is not None  # noqa: S101  # the condition above
            await self.run_state.set_published_step(manifest.step)
            async with self._changed:
                self.served, self._recovering = manifest, self.suspended
                self._changed.notify_all()

    @property
    def _oldest_loaded(self) -> WeightManifest | None:
        """Of what the engines have that are there, and have a server; None while one of them has nothing."""
        serving = [engine.name for engine in self.engines if engine.name not in self._without_server]
        has = [self._loaded[name] for name in serving if name in self._loaded]
        return min(has, key=lambda manifest: manifest.version) if has and len(has) == len(serving) else None

    async def _update_engine(
        self, engine: Remote[Engine], manifest: WeightManifest, *, even_if_overtaken: bool
    ) -> bool:
        """False when a newer one came meanwhile, or the engines are to stand aside, or this one is gone."""
        said, anew = "", False
        while self.newest is manifest and self._has_engine(engine):
            try:
                here = await self.transport.deliver(engine, manifest, self.served, refetch=anew)
                async with asyncio.timeout(self.update_timeout_s + _RETRY_S):
                    await engine.call(Engine.stage_weights, here, self.update_timeout_s)
                async with self._rolling_update.update_slot() as took:
                    if self.suspended or (self.newest is not manifest and not even_if_overtaken):
                        return False
                    report = await self._swap_weights(engine, here)
                    if report.pause_ms:  # it may have had these weights already
                        self.pause_ms = report.pause_ms
                        took(report)
                await self._compare_checksums(engine, report)
            except (InfraError, TimeoutError) as error:
                anew = isinstance(error, InvalidWeights)
                if isinstance(error, ServerRestarting | ActorDied):
                    async with self._changed:
                        self._without_server.add(engine.name)
                        self._changed.notify_all()
                if said != str(error):
                    said = str(error)
                    self.events.emit("engine.load_failed", engine=engine.name, version=manifest.version, why=said)
                await asyncio.sleep(_RETRY_S)
                continue
            return True
        return False

    async def _compare_checksums(self, engine: Remote[Engine], report: WeightLoadReport) -> None:
        """Doubt all that hold this version where they differ."""
        version, sums = self._checksums
        if report.version < version:
            return
        if report.version > version:
            self._checksums = report.version, (sums := {})
        sums[engine.name] = report.checksum
        if len(set(sums.values())) < 2:
            self._all_doubted &= len(sums) < len(self.engines)
            return
        again, self._all_doubted, self._checksums = self._all_doubted, True, (report.version, {})
        self.events.emit(
            "weights.checksum_mismatch", version=report.version, engines=", ".join(sorted(sums)), again=again
        )
        if again:
            return
        for each in self.engines:
            if each.name in sums:
                with suppress(InfraError):  # one that cannot be told starts another server anyway
                    await each.call(Engine.distrust_weights, report.version, sums[each.name])

    async def _swap_weights(self, engine: Remote[Engine], here: WeightManifest) -> WeightLoadReport:
        async with asyncio.timeout(self.update_timeout_s + _RETRY_S):
            return await engine.call(Engine.load_weights, here, self.update_timeout_s, patient=False)

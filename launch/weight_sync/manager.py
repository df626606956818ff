"""Brings published weights to the engines while everything else continues.

Training sets the newest version (:meth:`WeightSyncManager.set_newest`) and goes on; :meth:`WeightSyncManager.run`, one
of the background services that the driver starts, updates each engine to it independently, so a failing engine delays
no other.  The files first reach the engine's machine and are read and checked while it decodes
(:mod:`launch.weight_sync.transport`); then it loads them when :mod:`launch.weight_sync.rolling_update` lets it.  A
version that is superseded by then is skipped, but never twice in a row by one engine: however fast versions come, at
least every second attempt of an engine loads weights.  When all engines with a server serve a version or a later one,
the scheduler is told.  An engine whose server restarts is not waited for; it starts on the newest version.

If the servers' checksums of one version differ, those servers restart (:mod:`launch.weight_sync.checksum_audit`).

While the engines are suspended (:meth:`WeightSyncManager.suspend`) none is updated; afterwards each gets the newest
version, whatever it had.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from actors.engines.interface import Engine
from actors.engines.messages import InvalidWeights, ServerRestarting, WeightLoadReport
from actors.runtime.remote import Remote
from actors.runtime.remote_errors import ActorDied
from launch.weight_sync.checksum_audit import ChecksumAudit
from launch.weight_sync.rolling_update import RollingUpdate
from launch.weight_sync.transport import WeightTransport
from protocol.errors import InfraError
from protocol.events import EventLog
from protocol.weights import WeightManifest, format_version

RETRY_S = 1.0


@dataclass(slots=True, kw_only=True)
class WeightSyncManager:
    """Keeps every engine on the newest weights, a few engines at a time, and knows which weights all of them serve."""

    engines: Sequence[Remote[Engine]]
    report_served: Callable[[int], Awaitable[None]]
    """Tells the scheduler the step of the weights that every engine serves."""
    events: EventLog
    update_timeout_s: float
    max_updating_share: float
    max_update_overhead: float
    """Limits of :class:`~launch.weight_sync.rolling_update.RollingUpdate`."""
    transport: WeightTransport = field(default_factory=WeightTransport)
    newest: WeightManifest | None = None
    served: WeightManifest | None = None
    pause_ms: float = 0.0
    """Milliseconds of the last pause of an engine for new weights."""
    suspended: bool = False
    """Whether the engines have offloaded their memory and serve nothing."""
    _recovering: bool = False
    """Whether not all engines have weights again since they were suspended."""
    _loaded: dict[str, WeightManifest] = field(default_factory=dict[str, WeightManifest])
    """Weights that each engine loaded last, since the engines were last suspended."""
    _without_server: set[str] = field(default_factory=set[str])
    """Engines that had no server at their last update."""
    _checksum_audit: ChecksumAudit = field(default_factory=ChecksumAudit)
    _changed: asyncio.Condition = field(default_factory=asyncio.Condition)
    _rolling_update: RollingUpdate = field(init=False)

    def __post_init__(self) -> None:
        self._rolling_update = RollingUpdate(len(self.engines), self.max_updating_share, self.max_update_overhead)

    def set_served(self, manifest: WeightManifest) -> None:
        """Record that every engine was started on ``manifest``."""
        self.newest = self.served = manifest
        self.suspended = self._recovering = False
        self._loaded, self._without_server = {engine.name: manifest for engine in self.engines}, set()

    @property
    def weights_to_start(self) -> WeightManifest | None:
        """Weights that a restarted engine starts on; None while the engines are suspended."""
        return None if self.suspended else self.newest

    def suspend(self) -> None:
        """Update no engine until :meth:`resume`."""
        self.suspended = self._recovering = True
        self._loaded = {}

    async def resume(self) -> None:
        """Update every engine to the newest weights again."""
        async with self._changed:
            self.suspended = False
            self._changed.notify_all()

    async def set_newest(self, manifest: WeightManifest) -> None:
        """Make ``manifest`` the weights that :meth:`run` updates every engine to; returns at once."""
        async with self._changed:
            self.newest = manifest
            self._changed.notify_all()

    async def remove_engine(self, engine: str) -> None:
        """Forget an engine whose node is lost."""
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

    async def wait_newest_served(self, timeout_s: float) -> None:
        """Return when every engine serves the newest weights; their updates are not staggered meanwhile.  Raises
        InfraError if one does not in time."""
        if self.newest is None:
            return
        try:
            with self._rolling_update.unstaggered():
                async with asyncio.timeout(timeout_s):
                    await self.wait_served(self.newest)
        except TimeoutError as error:
            last = format_version(self.newest.version)
            raise InfraError(
                f"an engine did not load the last weights ({last}) within {timeout_s:g} s: its log "
                "(starts/N/logs) says why; --resume tries again"
            ) from error

    async def run(self) -> None:
        """Keep every engine updated until cancelled."""
        async with asyncio.TaskGroup() as group:
            for engine in self.engines:
                group.create_task(self._keep_engine_updated(engine), name=engine.name)
            group.create_task(self._announce_served())

    async def _keep_engine_updated(self, engine: Remote[Engine]) -> None:
        """Update the engine to each newest version until it is removed."""
        skipped_last = False
        while self._has_engine(engine):
            async with self._changed:
                await self._changed.wait_for(
                    lambda: (
                        (self.weights_to_start is not None and self._loaded.get(engine.name) is not self.newest)
                        or not self._has_engine(engine)
                    )
                )
                manifest = self.newest
                loaded_by_engine = self._loaded  # a new dict once the engines were suspended
            if manifest is None:
                continue
            loaded = await self._update_engine(engine, manifest, even_if_superseded=skipped_last)
            skipped_last = not loaded
            if loaded:
                async with self._changed:
                    loaded_by_engine[engine.name] = manifest
                    self._without_server.discard(engine.name)
                    self._changed.notify_all()

    async def _announce_served(self) -> None:
        """Inform the scheduler whenever all engines serve a version or later ones."""
        while True:
            async with self._changed:
                await self._changed.wait_for(
                    lambda: (
                        (oldest := self._oldest_loaded) is not None and (self.served is not oldest or self._recovering)
                    )
                )
                manifest = self._oldest_loaded
            assert manifest is not None  # noqa: S101  # the condition above
            await self.report_served(manifest.step)
            async with self._changed:
                self.served, self._recovering = manifest, self.suspended
                self._changed.notify_all()

    @property
    def _oldest_loaded(self) -> WeightManifest | None:
        """The oldest weights among the engines that have a server; None while one of them has none."""
        serving = [engine.name for engine in self.engines if engine.name not in self._without_server]
        loaded = [self._loaded[name] for name in serving if name in self._loaded]
        return min(loaded, key=lambda manifest: manifest.version) if loaded and len(loaded) == len(serving) else None

    async def _update_engine(
        self, engine: Remote[Engine], manifest: WeightManifest, *, even_if_superseded: bool
    ) -> bool:
        """Load ``manifest`` into an engine, with retries.  Return False if it was superseded, the engines were
        suspended or this one was removed."""
        reported, refetch = "", False
        while self.newest is manifest and self._has_engine(engine):
            try:
                local_manifest = await self.transport.ensure_local_copy(engine, manifest, self.served, refetch=refetch)
                async with asyncio.timeout(self.update_timeout_s + RETRY_S):
                    await engine.call(Engine.stage_weights, local_manifest, self.update_timeout_s)
                async with self._rolling_update.update_slot() as record_pause:
                    if self.suspended or (self.newest is not manifest and not even_if_superseded):
                        return False
                    report = await self._load_weights(engine, local_manifest)
                    if report.pause_ms:  # it may have had these weights already
                        self.pause_ms = report.pause_ms
                        record_pause(report)
                await self._audit_checksum(engine, report)
            except (InfraError, TimeoutError) as error:
                refetch = isinstance(error, InvalidWeights)
                if isinstance(error, ServerRestarting | ActorDied):
                    async with self._changed:
                        self._without_server.add(engine.name)
                        self._changed.notify_all()
                if reported != str(error):
                    reported = str(error)
                    self.events.emit("engine.load_failed", engine=engine.name, version=manifest.version, why=reported)
                await asyncio.sleep(RETRY_S)
                continue
            return True
        return False

    async def _audit_checksum(self, engine: Remote[Engine], report: WeightLoadReport) -> None:
        """Restart the servers of all engines that hold this version if their checksums differ for the first time."""
        mismatch = self._checksum_audit.record(engine.name, report.version, report.checksum, len(self.engines))
        if mismatch is None:
            return
        holders = ", ".join(sorted(mismatch.checksums))
        self.events.emit(
            "weights.checksum_mismatch", version=report.version, engines=holders, repeated=mismatch.is_repeated
        )
        if mismatch.is_repeated:
            return
        for each in self.engines:
            if each.name in mismatch.checksums:
                with suppress(InfraError):  # an engine that does not answer restarts its server anyway
                    await each.call(Engine.restart_if_checksum, report.version, mismatch.checksums[each.name])

    async def _load_weights(self, engine: Remote[Engine], local_manifest: WeightManifest) -> WeightLoadReport:
        async with asyncio.timeout(self.update_timeout_s + RETRY_S):
            return await engine.call(Engine.load_weights, local_manifest, self.update_timeout_s, wait_for_restart=False)

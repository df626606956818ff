"""One serving engine: an SGLang server, its supervision, requests and weights.  A plain class; an actor elsewhere.

Requests (``generate``) are :class:`~actors.engines.routing.request_queue.Dispatch`'s, behind a gate that is opened and shut here.

Weights (``load``) are read and checked while the server decodes.  Then, under the update lock: gate shut → pause in
place → exchange → version and checksum confirmed → continue → gate open; or, without a pause, an adapter is loaded and
confirmed (:mod:`.updates`).  Either runs in the engine's own task group, so a caller that is cancelled or dies leaves
nothing paused; while the server stands still under a lease (version, deadline), health is not judged.  The server never
continues on weights that are not known: a load that never began continues as old, one that was refused is followed by a
checksummed reload of the last confirmed weights, everything else by a restart.

Memory (``lend``): where the learner takes turns with the server on one device, the same lock is held for all of the
learner's turn: gate shut → requests cut, which go on after it → memory given away → … → taken back → weights
loaded and confirmed → continue → gate open.  The turn ends with a ``load``, or by itself with its lease, on the last
confirmed weights.  A server that dies meanwhile is replaced after it, not in the learner's memory.

The supervisor waits for the server's trouble (its processes ended, a probe hung, an exchange went wrong), restarts with
back-off on the newest weights that are there and opens the gate again.  It goes on until ``stop``.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Generator, Mapping
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, replace
from pathlib import Path

from actors.engines.memory_lease import MemoryLease
from actors.engines.messages import (
    EngineLoad,
    EnginePids,
    EngineSnapshot,
    EngineStartError,
    EngineState,
    EngineStatistics,
    EngineStatus,
    EngineUnavailable,
    GenerateReply,
    GenerateRequest,
    InvalidWeights,
    OnPartialReply,
    PartialReply,
    RequestRefused,
    ServerLost,
    ServerRestarting,
    WeightLoadError,
    WeightLoadReport,
)
from actors.engines.routing.request_queue import RequestQueue
from actors.engines.server.process import SGLangServer
from actors.engines.settings import EngineSettings
from actors.engines.weights import weight_files
from actors.engines.weights.broadcast_loader import BroadcastSender
from actors.engines.weights.factory import create_weight_updater
from actors.engines.weights.loader import StagedLoad
from actors.engines.weights.swap import (
    ActiveServer,
    ConfirmedWeights,
    release_server_memory,
    resume_server_with_weights,
)
from actors.runtime.stoppable_task import StoppableTask
from protocol.activity import ActivityLog
from protocol.events import EventLog
from protocol.weights import NO_VERSION, WeightManifest, WeightVersion, format_version

_BACK_OFF_S = (0.0, 1.0, 2.0, 5.0, 10.0, 30.0)
_WELL_S = 60.0
"""A server that served for so long is started again at once."""
_END_S = 60.0
_FAILED_PROBES = 3
_DRAINED = "it was drained, as it was asked to"


@dataclass(frozen=True, slots=True)
class _PauseLease:
    """The right to hold the server paused for ``version`` until ``deadline`` on the loop's clock."""

    version: WeightVersion
    deadline: float


@dataclass(frozen=True, slots=True)
class _StagedVersion:
    """A version that the server can be told of at once."""

    manifest: WeightManifest
    load: StagedLoad
    ms: float
    """What that took."""


@dataclass(slots=True)
class _PauseRecord:
    """How long the engine stood still for a load, and how many requests with it."""

    ms: float = 0.0
    requests: int = 0


class Engine:
    """See the module.  ``start`` once, ``stop`` at the end; everything else between them, from any number of tasks."""

    def __init__(self, settings: EngineSettings, sender: BroadcastSender | None = None) -> None:
        """``sender``: weights come straight from the learner's host (:mod:`.direct`)."""
        self._settings, self._server_settings = settings, settings.server_settings()
        self._events = EventLog(settings.run_dir, settings.name, settings.node)
        self._lane = ActivityLog(settings.run_dir, settings.name, "engine")
        self._state, self._error, self._start_s = EngineState.NEW, "", 0.0
        self._dispatch = RequestQueue(
            settings.name,
            max_running=settings.max_running,
            max_queued=settings.queue_limit,
            context_length=settings.context_length,
            deterministic=settings.deterministic,
            prefix_reuse=settings.prefix_reuse,
            state=lambda: self._state,
            sending=lambda: self._lane.track("generating"),
        )
        self._updates = create_weight_updater(settings, self._dispatch, sender)
        self._staged: _StagedVersion | None = None
        self._update_lock = asyncio.Lock()
        self._lease: _PauseLease | None = None
        self._still_since = 0.0
        """Of the last pause for new weights; monotonic seconds."""
        self._turn: MemoryLease | None = None
        self._model: weight_files.ModelShape | None = None
        self._serving: ActiveServer | None = None
        self._group: asyncio.TaskGroup | None = None
        self._background: StoppableTask | None = None

    # life

    async def start(self, manifest: WeightManifest) -> EngineStatus:
        """Start the server on a manifest's weights.  Raises :class:`EngineStartError` or :class:`BadWeights`."""
        if self._state is not EngineState.NEW:
            raise EngineStartError(f"engine {self._settings.name} is {self._state} and cannot be started")
        self._state = EngineState.STARTING
        try:
            model = await asyncio.to_thread(weight_files.read_model_shape, Path(self._settings.model_path))
            await self._updates.check_version(manifest, model)
            self._model, self._dispatch.vocabulary_size = model, model.vocabulary
            self._serving = await self._launch(manifest)
        except BaseException as error:
            self._state, self._error = EngineState.NEW, str(error)
            raise
        if self._state is not EngineState.STARTING:
            await self._serving.server.stop()
            raise EngineStartError(f"engine {self._settings.name} was stopped while it started")
        self._emit_started("engine.started", self._serving)
        self._serve(self._serving)
        running = asyncio.Event()
        self._background = StoppableTask(self._run(running), f"engine-{self._settings.name}")
        await running.wait()
        return await self.status()

    async def stop(self) -> None:
        """End the server and every request.  Harmless on an engine that does not run."""
        if self._state is EngineState.STOPPED:
            return
        self._state = EngineState.STOPPED
        self._dispatch.close()
        try:
            if self._background is not None:
                await self._background.stop()
        finally:
            if self._serving is not None:
                await self._serving.server.stop()
            self._events.close()

    async def status(self) -> EngineStatus:
        serving = self._serving
        return EngineStatus(
            name=self._settings.name,
            state=self._state,
            version=serving.confirmed.manifest.version if serving else NO_VERSION,
            pid=serving.server.pids.server if serving else 0,
            port=serving.server.port if serving else 0,
            node=self._settings.node,
            restarts=self._dispatch.counters.restarts,
            start_s=self._start_s,
            error=self._error,
        )

    async def statistics(self) -> EngineStatistics:
        return replace(self._dispatch.counters)

    async def drain(self, patience_s: float) -> bool:
        """Dispatch nothing, let what is being sampled end, and have another server take this one's place; whether all
        ended within ``patience_s``.  What did not goes on there, behind the tokens received.  Return once it serves.

        Raises :class:`EngineUnavailable` where there is no server to drain."""
        serving, group = self._serving, self._group
        if serving is None or group is None or self._state is not EngineState.SERVING:
            raise EngineUnavailable(f"engine {self._settings.name} is {self._state} and cannot be drained: try again")
        ended = await asyncio.shield(group.create_task(self._drain(serving, patience_s)))
        if ended is None:
            raise EngineUnavailable(f"engine {self._settings.name} lost its server before it was drained")
        return ended

    async def _drain(self, serving: ActiveServer, patience_s: float) -> bool | None:
        """None where the server is not there any more."""
        async with self._update_lock:
            if serving is not self._serving or serving.failure.done():
                return None
            self._dispatch.dispatch_open.clear()
            self._state = EngineState.DRAINING
            self._events.emit("engine.draining", engine=self._settings.name)
            ended = await self._dispatch.wait_until_idle(patience_s)
            serving.mark_failed(_DRAINED)
        await self._dispatch.dispatch_open.wait()
        return ended

    def pids(self) -> EnginePids:
        """Of the server in use."""
        if self._serving is None:
            raise EngineUnavailable(f"engine {self._settings.name} has no server")
        return self._serving.server.pids

    # requests

    async def generate(self, request: GenerateRequest, watch: OnPartialReply | None = None) -> GenerateReply:
        """Sample one continuation.  ``watch`` is for callers in this process.

        Raises :class:`RequestRefused`, :class:`EngineBusy` at once; :class:`EngineUnavailable` after the deadline, or
        after ``patience_s`` without a server.
        """
        return await self._dispatch.generate(request, watch)

    async def partial_replies(self, known: Mapping[str, int]) -> dict[str, PartialReply]:
        """What has come of those of these requests (by name) that are under way, behind as many tokens as are known."""
        return self._dispatch.partial_replies(known)

    async def snapshot(self, known: Mapping[str, int]) -> EngineSnapshot:
        """For a router: :meth:`received` of its requests, and what is to be known of the engine."""
        load = EngineLoad(
            state=self._state,
            paused_s=time.monotonic() - self._still_since if self._state is EngineState.UPDATING else 0.0,
            version=self._serving.confirmed.manifest.version if self._serving else NO_VERSION,
            tokens=self._dispatch.count_tokens(known),
        )
        return EngineSnapshot(await self.partial_replies(known), load)

    # weights

    async def stage_weights(self, manifest: WeightManifest, deadline_s: float) -> None:
        """Do what :meth:`load` of this version can do while the server decodes.  Raises :class:`BadWeights` or
        :class:`LoadError`."""
        if self._serves_version(manifest) or (self._staged is not None and self._staged.manifest == manifest):
            return
        self._staged = None  # it takes as much memory, of which there may be no more
        try:
            async with asyncio.timeout(deadline_s):
                self._staged = await self._stage(manifest)
        except TimeoutError:
            label = format_version(manifest.version)
            raise WeightLoadError(
                f"engine {self._settings.name} has not read version {label} in {deadline_s:g} s: raise "
                "engine.update_timeout_s if its disk takes longer"
            ) from None

    def _serves_version(self, manifest: WeightManifest) -> bool:
        serving = self._serving
        return serving is not None and serving.confirmed.manifest.version == manifest.version and self._turn is None

    async def _stage(self, manifest: WeightManifest) -> _StagedVersion:
        if self._model is None:
            raise WeightLoadError(f"engine {self._settings.name} is {self._state} and cannot load weights")
        begun = time.monotonic()
        with self._lane.track("loading"):
            load = await self._updates.stage_weights(manifest, self._model)
        return _StagedVersion(manifest, load, (time.monotonic() - begun) * 1000)

    def _take_staged(self, manifest: WeightManifest) -> _StagedVersion | None:
        """What was staged, if it is this version; of another one nothing is kept."""
        staged, self._staged = self._staged, None
        return staged if staged is not None and staged.manifest == manifest else None

    async def load_weights(
        self, manifest: WeightManifest, deadline_s: float, *, patient: bool = True
    ) -> WeightLoadReport:
        """Exchange the weights in place, or take the memory back with them.  A version that is served already is a
        success at once.  ``patient``: a restart of the server is waited for.

        Raises :class:`BadWeights` (the server was not told) or :class:`LoadError`: after it the engine serves, or will
        serve, the last confirmed weights, or the new ones if their load ended after the deadline.
        """
        serving, group = self._serving, self._group
        if serving is None or group is None or self._state is EngineState.STOPPED:
            raise WeightLoadError(f"engine {self._settings.name} is {self._state} and cannot load weights")
        if self._serves_version(manifest):
            return WeightLoadReport(
                version=manifest.version,
                pause_ms=0.0,
                load_ms=0.0,
                prefetch_ms=0.0,
                checksum=serving.confirmed.checksum,
            )
        if self._turn is None:
            self._check_server(patient=patient)  # before what was staged is used up
        deadline = asyncio.get_running_loop().time() + deadline_s
        try:
            async with asyncio.timeout_at(deadline):
                staged = self._take_staged(manifest) or await self._stage(manifest)
                outcome = None
                if self._turn is not None:
                    outcome = await self._turn.end_with_weights(manifest)
                    if isinstance(outcome, WeightLoadReport) and outcome.version != manifest.version:
                        outcome = None  # it had ended by itself, on the weights before
                while outcome is None:
                    self._check_server(patient=patient)
                    swap = group.create_task(self._swap(staged, _PauseLease(manifest.version, deadline)))
                    outcome = await asyncio.shield(swap)
        except TimeoutError:
            raise WeightLoadError(
                f"engine {self._settings.name} did not take version {format_version(manifest.version)} within "
                f"{deadline_s:g} s; it is {self._state}"
            ) from None
        if isinstance(outcome, WeightLoadError):
            raise outcome
        return outcome

    def _check_server(self, *, patient: bool) -> None:
        """Raises :class:`NoServer` where there is none to exchange weights with, and nobody waits for the next."""
        if not patient and (self._serving is None or self._serving.failure.done()):
            raise ServerRestarting(f"engine {self._settings.name} lost its server and starts another")

    async def _swap(self, staged: _StagedVersion, lease: _PauseLease) -> WeightLoadReport | WeightLoadError | None:
        """The exchange under the update lock; every error that it can have is its value.

        None if the server is in trouble: the supervisor is next in the lock's queue, so the caller asks again.
        """
        manifest, prefetch_ms = staged.manifest, staged.ms
        async with self._update_lock:
            serving, label = self._serving, format_version(manifest.version)
            if serving is None or serving.failure.done():
                return None
            if asyncio.get_running_loop().time() >= lease.deadline:
                return WeightLoadError(f"version {label} did not begin to load before its deadline")
            if serving.confirmed.manifest.version == manifest.version:
                checksum = serving.confirmed.checksum
                return WeightLoadReport(version=manifest.version, prefetch_ms=prefetch_ms, checksum=checksum)
            still = _PauseRecord()
            try:
                load_ms = await self._updates.apply_weights(
                    serving, manifest, staged.load, self._paused_for_load(serving, lease, still), lease.deadline
                )
            except (ServerLost, WeightLoadError, TimeoutError) as error:
                why = f"version {label} was not taken: {str(error) or 'no answer in time'}"
                self._events.emit(
                    "engine.load_failed",
                    engine=self._settings.name,
                    version=manifest.version,
                    why=why,
                    pause_ms=round(still.ms, 2),
                )
                return WeightLoadError(why)
            self._dispatch.counters.loads += 1
            self._events.emit(
                "engine.load",
                engine=self._settings.name,
                version=manifest.version,
                pause_ms=round(still.ms, 2),
                load_ms=round(load_ms, 2),
                prefetch_ms=round(prefetch_ms, 2),
            )
            return WeightLoadReport(
                version=manifest.version,
                pause_ms=still.ms,
                paused_requests=still.requests,
                load_ms=load_ms,
                prefetch_ms=prefetch_ms,
                checksum=serving.confirmed.checksum,
            )

    async def distrust_weights(self, version: WeightVersion, checksum: str) -> None:
        """What the server holds as ``version``, of this checksum, may be other weights: start another on its files.
        Harmless where it holds something else."""
        serving = self._serving
        if serving and (serving.confirmed.manifest.version, serving.confirmed.checksum) == (version, checksum):
            serving.mark_failed(f"its weights are in doubt: another engine holds others as {format_version(version)}")

    @contextmanager
    def _paused_for_load(self, serving: ActiveServer, lease: _PauseLease, still: _PauseRecord) -> Generator[None]:
        """Nothing is dispatched, and health is not judged."""
        self._dispatch.dispatch_open.clear()
        self._state, self._lease = EngineState.UPDATING, lease
        self._still_since = begun = time.monotonic()
        still.requests = self._dispatch.counters.running
        try:
            with self._lane.track("paused"):
                yield
        finally:
            self._lease = None
            if self._state is EngineState.UPDATING:
                self._serve(serving)
            still.ms = (time.monotonic() - begun) * 1000

    # memory

    async def offload_memory(self, lease_s: float, deadline_s: float) -> None:
        """Give the server's memory away until the next :meth:`load`, or until ``lease_s`` are over.  While it is lent
        only the lease begins anew; an engine that was not started has nothing to lend.  Raises :class:`LoadError` where
        it is not done by ``deadline_s``; it may be later."""
        if self._state is EngineState.NEW:
            return
        if self._group is None or self._state is EngineState.STOPPED:
            raise WeightLoadError(f"engine {self._settings.name} is {self._state} and cannot lend its memory")
        turn = self._turn
        if turn is None or turn.is_ending:  # of the latter the lock lets go once the server is back
            turn = self._turn = MemoryLease()
            turn.task = self._group.create_task(self._hold_offloaded(turn))
        turn.renew(lease_s)
        try:
            async with asyncio.timeout(deadline_s):
                await turn.released.wait()
        except TimeoutError:
            raise WeightLoadError(
                f"engine {self._settings.name} has not given its memory away within {deadline_s:g} s; it is "
                f"{self._state}"
            ) from None

    async def _hold_offloaded(self, turn: MemoryLease) -> WeightLoadReport | WeightLoadError | None:
        """The learner's turn, under the update lock from its beginning to its end; what came of the load that ended it.
        None if the server is in trouble: the supervisor is next in the lock's queue, so the caller asks again."""
        async with self._update_lock:
            with self._lane.track("offloaded"):
                return await self._offload_until_returned(turn)

    async def _offload_until_returned(self, turn: MemoryLease) -> WeightLoadReport | WeightLoadError | None:
        """:meth:`_take_turn`, under the lock."""
        serving, begun = self._serving, time.monotonic()
        assert serving is not None  # noqa: S101  # it was started
        self._dispatch.dispatch_open.clear()
        self._state = EngineState.OFFLOADED
        self._events.emit("engine.offloaded", engine=self._settings.name)
        await release_server_memory(serving, self._settings.load_grace_s)
        turn.released.set()
        manifest, why = await turn.wait_until_ended(), ""
        if manifest is None:
            manifest, why = serving.confirmed.manifest, "the learner's turn outlasted its lease"
        before = serving.confirmed.manifest.version
        outcome = await self._resume_after_offload(serving, manifest, begun)
        if outcome is None:
            why = serving.failure.result()
        elif isinstance(outcome, WeightLoadError):
            why = str(outcome)
        self._events.emit(
            "engine.onloaded",
            engine=self._settings.name,
            version=serving.confirmed.manifest.version,
            new=serving.confirmed.manifest.version != before,
            offloaded_s=round(time.monotonic() - begun, 3),
            load_ms=round(outcome.load_ms, 2) if isinstance(outcome, WeightLoadReport) else 0.0,
            why=why,
        )
        if self._turn is turn:
            self._turn = None
        return outcome

    async def _resume_after_offload(
        self, serving: ActiveServer, manifest: WeightManifest, begun: float
    ) -> WeightLoadReport | WeightLoadError | None:
        if serving.failure.done():
            return None
        try:
            settings = self._settings
            load_ms = await resume_server_with_weights(
                serving, manifest, grace_s=settings.load_grace_s, item_bytes=settings.item_bytes
            )
        except (ServerLost, WeightLoadError, TimeoutError) as error:
            label, why = format_version(manifest.version), str(error) or "no answer in time"
            return WeightLoadError(f"version {label} was not taken after the learner's turn: {why}")
        finally:
            if self._state is EngineState.OFFLOADED:
                self._serve(serving)
        self._dispatch.counters.loads += 1
        offloaded_s = time.monotonic() - begun
        return WeightLoadReport(
            version=manifest.version, load_ms=load_ms, offloaded_s=offloaded_s, checksum=serving.confirmed.checksum
        )

    # supervision

    async def _run(self, running: asyncio.Event) -> None:
        try:
            async with asyncio.TaskGroup() as group:
                self._group = group
                running.set()
                group.create_task(self._supervise())
                group.create_task(self._probe())
                group.create_task(self._dispatch.abort_abandoned())
                group.create_task(self._updates.run_cleanup())
                group.create_task(self._lane.write_periodically())
        finally:
            if self._state is not EngineState.STOPPED:
                self._state, self._error = EngineState.STOPPED, "its supervision ended: a defect"
                self._dispatch.close()

    async def _supervise(self) -> None:
        failures = 0
        while (serving := self._serving) is not None:
            began = time.monotonic()
            why = await asyncio.shield(serving.failure)
            died, pid = why != _DRAINED, serving.server.pids.server
            failures = failures + 1 if died and time.monotonic() - began < _WELL_S else 0
            self._state, self._error = EngineState.RESTARTING, why
            kind = "engine.died" if died else "engine.drained"
            self._events.emit(kind, engine=self._settings.name, why=why, pid=pid)
            async with self._update_lock:
                with self._lane.track("down"):
                    await self._end(serving.server)
                    self._serving = await self._relaunch(serving.confirmed, failures)
                    await self._catch_up(self._serving)
                self._dispatch.counters.restarts += 1
                self._emit_started("engine.restarted", self._serving)
                self._serve(self._serving)

    async def _end(self, server: SGLangServer) -> None:
        """Of one whose processes do not end, a device's driver holds them, say, that is told."""
        patience_s = self._settings.stop_grace_s + _END_S
        try:
            async with asyncio.timeout(patience_s):
                await server.stop()
        except TimeoutError:
            self._report_failed_start(
                f"process {server.pids.server} and its children have not ended within {patience_s:g} s"
            )
            await server.stop()

    async def _catch_up(self, serving: ActiveServer) -> None:
        """Take what was staged meanwhile, before anything is dispatched: where it is not taken, the next load tells."""
        staged, grace_s = self._staged, self._settings.load_grace_s
        if staged is None or staged.manifest.version == serving.confirmed.manifest.version:
            return
        deadline = asyncio.get_running_loop().time() + grace_s
        with suppress(ServerLost, WeightLoadError, TimeoutError):
            await self._updates.apply_weights(serving, staged.manifest, staged.load, nullcontext(), deadline)

    async def _relaunch(self, confirmed: ConfirmedWeights, failures: int) -> ActiveServer:
        """A new server, tried until it starts: on what is staged and, every other time, on the last confirmed weights,
        whose files may be gone.  Where a server that begins with these holds others than the one before did, and the
        files are as published, that one was wrong.  ``failures``: how often in succession the one before ended soon."""
        newest = False
        while True:
            await asyncio.sleep(_BACK_OFF_S[min(failures, len(_BACK_OFF_S) - 1)])
            failures, newest = failures + 1, not newest
            manifest = self._staged.manifest if newest and self._staged is not None else confirmed.manifest
            try:
                serving = await self._launch(manifest)
            except (EngineStartError, OSError) as error:
                self._report_failed_start(str(error))
                continue
            if manifest != confirmed.manifest or serving.confirmed.checksum == confirmed.checksum:
                return serving
            try:
                await asyncio.to_thread(weight_files.check_published, self._updates.start_weights(manifest))
            except InvalidWeights as error:
                await serving.server.stop()
                self._report_failed_start(str(error))
            else:
                self._events.emit("engine.weights_repaired", engine=self._settings.name, version=manifest.version)
                return serving

    def _report_failed_start(self, why: str) -> None:
        self._error = why
        self._events.emit("engine.restart_failed", engine=self._settings.name, why=why)

    async def _launch(self, manifest: WeightManifest) -> ActiveServer:
        begun = time.monotonic()
        base = self._updates.start_weights(manifest)
        server = await SGLangServer.launch(self._server_settings, base)
        trouble: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        patience_s = self._settings.start_timeout_s
        try:
            async with asyncio.timeout(patience_s):
                checksum = await server.client.read_checksum()
                dispatch = self._dispatch
                serving = ActiveServer(
                    server,
                    ConfirmedWeights(base, checksum),
                    dispatch.dispatch_open,
                    trouble,
                    dispatch.note_weight_change,
                )
                await self._updates.attach_server(serving, manifest)
        except (TimeoutError, ServerLost, WeightLoadError) as error:
            await server.stop()
            why = str(error) or f"not within {patience_s:g} s"
            raise EngineStartError(f"what the server has loaded could not be confirmed: {why}") from error
        except BaseException:
            await server.stop()
            raise
        self._start_s = time.monotonic() - begun
        server.ended.add_done_callback(lambda ended: serving.mark_failed(ended.result()))
        return serving

    async def _probe(self) -> None:
        """Ask a silent server for a token; one that lets the probe hang, or fails it three times, is condemned."""
        number, failures, probed = 0, 0, self._serving
        while True:
            await asyncio.sleep(self._settings.probe_every_s)
            serving, asked_at = self._serving, time.monotonic()
            recent = asked_at - self._dispatch.last_token_at < self._settings.probe_every_s
            if recent or serving is not probed:
                failures, probed = 0, serving
            if serving is None or self._state is not EngineState.SERVING or recent:
                continue
            number += 1
            try:
                async with asyncio.timeout(self._settings.stall_timeout_s):
                    await serving.server.probe(f"{self._settings.name}-probe-{number}")
            except TimeoutError:
                silent = self._dispatch.last_token_at < asked_at
                if silent and self._lease is None and self._turn is None:
                    serving.mark_failed(f"it was silent for {self._settings.stall_timeout_s:g} s")
            except (ServerLost, RequestRefused) as error:
                failures += self._turn is None  # whose beginning ends every request
                if failures >= _FAILED_PROBES:
                    serving.mark_failed(f"{failures} probes failed: {error}")
            else:
                failures = 0

    def _serve(self, serving: ActiveServer) -> None:
        """Open the gate to a server that is well; one in trouble is the supervisor's."""
        if not serving.failure.done():
            self._state = EngineState.SERVING
            self._dispatch.open(serving)

    def _emit_started(self, kind: str, serving: ActiveServer) -> None:
        self._events.emit(
            kind,
            engine=self._settings.name,
            pid=serving.server.pids.server,
            port=serving.server.port,
            version=serving.confirmed.manifest.version,
            seconds=round(self._start_s, 3),
        )

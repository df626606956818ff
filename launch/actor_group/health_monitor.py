"""Watches a run's actors: reports dead processes, restarts hung ones, runs workers again, and starts the server of an
engine that Ray had to restart."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from actors.engines.interface import Engine
from actors.engines.messages import EngineState
from actors.runtime.remote import Remote, restart_actor, short_actor_name
from actors.runtime.remote_errors import RemoteError
from actors.workers.rollout_worker import RolloutWorker
from launch.hosts.cluster_nodes import ClusterNode
from launch.weight_sync.transport import WeightTransport
from protocol.errors import InfraError, iterate_leaf_errors
from protocol.events import EventLog
from protocol.weights import WeightManifest
from sandbox.tasks.task import Task

ACTOR_START_S = 600.0
"""Seconds that a starting process may be silent: it imports Ray, torch and more, perhaps on a busy machine."""
PROMPT_ANSWER_S = 1.0
"""Seconds in which a healthy process answers a small call."""
RETRY_S = 1.0
CHECK_S = 2.0
_REMOTE_ATTEMPTS = 2
"""Calls to a process on another machine before it counts as hung."""


class HealthMonitor:
    """Probes a run's actors, and restarts those that hang or have died."""

    def __init__(
        self,
        events: EventLog,
        silence_s: float,
        transport: WeightTransport,
        *,
        node_of: Callable[[Remote[Any]], ClusterNode],
        logs_of: Callable[[Remote[Any]], Path],
    ) -> None:
        """``silence_s`` is how long an actor may be silent; ``logs_of`` returns the log folder on the actor's host."""
        self._events, self._silence_s, self._transport = events, silence_s, transport
        self._node_of, self._logs_of = node_of, logs_of
        self.last_worker_death: float | None = None
        """Time of the last death of a worker, by the monotonic clock."""

    async def watch_liveness(self, actor: Remote[Any]) -> None:
        """Until cancelled: report when the actor's process died, and restart one that hangs."""
        known, with_stack_dumps, silence_s = 0, 0, self._silence_s
        while True:
            try:
                pid = await self._pid(actor, silence_s if known else max(silence_s, ACTOR_START_S))
            except RemoteError:
                pid = known  # it is being restarted
            except TimeoutError:
                why = f"its process {known or 'that starts'} does not answer; it is killed and started again"
                self._events.emit("process.hung", what=actor.name, why=why, pid=known)
                restart_actor(actor)
                pid = known = 0
            if pid not in {0, with_stack_dumps} and await self._enable_stack_dumps(actor):
                with_stack_dumps = pid
            if known and pid != known:
                why = f"its process {known} ended; process {pid} is in its place"
                self._events.emit("process.died", what=actor.name, why=why, pid=known)
            known = pid
            await asyncio.sleep(CHECK_S)

    async def _pid(self, actor: Remote[Any], silence_s: float) -> int:
        """Return the actor's process id.  Raises TimeoutError if it is silent for ``silence_s``.

        On another machine it is called once more, because a broken connection may lose an answer."""
        for attempts_left in reversed(range(_REMOTE_ATTEMPTS if self._node_of(actor).remote else 1)):
            try:
                async with asyncio.timeout(silence_s):
                    return await actor.pid()
            except TimeoutError:
                if not attempts_left:
                    raise
        raise AssertionError("unreachable")

    async def _enable_stack_dumps(self, actor: Remote[Any]) -> bool:
        """Let the actor's process dump its stacks on a signal; false if it does not answer at once."""
        name = short_actor_name(actor.name)
        try:
            async with asyncio.timeout(PROMPT_ANSWER_S):
                await actor.offer_stacks(self._logs_of(actor) / f"{name}.stacks", name)
        except (RemoteError, TimeoutError):
            return False
        return True

    async def keep_engine_serving(self, engine: Remote[Engine], newest: Callable[[], WeightManifest | None]) -> None:
        """Until cancelled: start the server of an engine that has none, on the ``newest`` weights."""
        while True:
            await asyncio.sleep(CHECK_S)
            try:
                state = (await engine.call(Engine.status)).state
                if state is EngineState.NEW and (manifest := newest()) is not None:
                    await engine.call(Engine.start, await self._transport.ensure_local_copy(engine, manifest, None))
                elif state is EngineState.STOPPED:  # by a defect: nothing else stops one during a run
                    restart_actor(engine)
            except InfraError as error:
                self._events.emit("engine.restart_failed", engine=engine.name, why=str(error))

    async def keep_worker_running(self, worker: Remote[RolloutWorker], tasks: Mapping[str, Task]) -> None:
        """Run the worker until it is stopped, again after each of its deaths."""
        while True:
            try:
                await worker.call(RolloutWorker.run, tasks)
            except Exception as error:
                failures = [leaf for leaf in iterate_leaf_errors(error) if isinstance(leaf, InfraError)]
                if len(failures) < len(list(iterate_leaf_errors(error))):
                    raise
                self.last_worker_death = time.monotonic()
                self._events.emit("worker.failed", worker=worker.name, why=str(failures[0]))
                await asyncio.sleep(RETRY_S)
            else:
                return

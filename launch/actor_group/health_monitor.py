"""What is done for each of a run's processes while it goes on: those that died are named, those that hang are ended,
workers are kept at work, and an engine that Ray had to restart is started on the newest weights."""

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
"""A process that starts may be silent for so long: it imports Ray, torch and more on a machine that may be busy."""
PROMPT_ANSWER_S = 1.0
"""A process that is well has answered a small question by then."""
_RETRY_S = 1.0
_LOOK_S = 2.0
_REMOTE_TRIES = 2
"""Times that a process on another machine is asked before it counts as one that hangs."""


class HealthMonitor:
    """``home`` and ``logs``: an actor's node, and the folder that its processes log to there."""

    def __init__(
        self,
        events: EventLog,
        silence_s: float,
        delivery: WeightTransport,
        *,
        home: Callable[[Remote[Any]], ClusterNode],
        logs: Callable[[Remote[Any]], Path],
    ) -> None:
        self._events, self._silence_s, self._delivery, self._home, self._logs = events, silence_s, delivery, home, logs
        self.last_worker_death: float | None = None
        """When one did last, by the monotonic clock."""

    async def watch_liveness(self, actor: Remote[Any]) -> None:
        """Until cancelled: say when its process died, and end one that hangs."""
        known, offered, silence_s = 0, 0, self._silence_s
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
            if pid not in {0, offered} and await self._enable_stack_dumps(actor):
                offered = pid
            if known and pid != known:
                why = f"its process {known} ended; process {pid} is in its place"
                self._events.emit("process.died", what=actor.name, why=why, pid=known)
            known = pid
            await asyncio.sleep(_LOOK_S)

    async def _pid(self, actor: Remote[Any], silence_s: float) -> int:
        """Raises TimeoutError where it has been silent for so long.  On another machine it is asked once more then: a
        cable that is cut may swallow an answer for good."""
        for left in reversed(range(_REMOTE_TRIES if self._home(actor).remote else 1)):
            try:
                async with asyncio.timeout(silence_s):
                    return await actor.pid()
            except TimeoutError:
                if not left:
                    raise
        raise AssertionError("unreachable")

    async def _enable_stack_dumps(self, actor: Remote[Any]) -> bool:
        """Let a process that has begun offer its stacks; false where it has not answered at once."""
        name = short_actor_name(actor.name)
        try:
            async with asyncio.timeout(PROMPT_ANSWER_S):
                await actor.offer_stacks(self._logs(actor) / f"{name}.stacks", name)
        except (RemoteError, TimeoutError):
            return False
        return True

    async def keep_engine_serving(self, engine: Remote[Engine], newest: Callable[[], WeightManifest | None]) -> None:
        """Until cancelled: an engine that has no server gets one, on the ``newest`` weights."""
        while True:
            await asyncio.sleep(_LOOK_S)
            try:
                state = (await engine.call(Engine.status)).state
                if state is EngineState.NEW and (manifest := newest()) is not None:
                    await engine.call(Engine.start, await self._delivery.deliver(engine, manifest, None))
                elif state is EngineState.STOPPED:  # by a defect: nobody else stops one during a run
                    restart_actor(engine)
            except InfraError as error:
                self._events.emit("engine.restart_failed", engine=engine.name, why=str(error))

    async def keep_worker_running(self, worker: Remote[RolloutWorker], tasks: Mapping[str, Task]) -> None:
        """Until the worker was told to stop, through all of its deaths."""
        while True:
            try:
                await worker.call(RolloutWorker.run, tasks)
            except Exception as error:
                why = [leaf for leaf in iterate_leaf_errors(error) if isinstance(leaf, InfraError)]
                if len(why) < len(list(iterate_leaf_errors(error))):
                    raise
                self.last_worker_death = time.monotonic()
                self._events.emit("worker.failed", worker=worker.name, why=str(why[0]))
                await asyncio.sleep(_RETRY_S)
            else:
                return

"""Stops actors within a deadline; one that does not stop is an event, and Ray ends its process."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, TypeVar

from actors.runtime.remote import Remote
from protocol.events import EventLog

T = TypeVar("T")

ACTOR_STOP_S = 15.0
"""Longest wait for an actor to stop."""


async def stop_actors(
    actors: Sequence[Remote[T]], stop: Callable[[T], Coroutine[Any, Any, None]], events: EventLog
) -> list[Remote[T]]:
    """Stop actors at the same time and return those that did not stop."""
    async with asyncio.TaskGroup() as group:
        stopping = {actor: group.create_task(_stop_actor(actor.name, actor.call(stop), events)) for actor in actors}
    return [actor for actor, stopped in stopping.items() if not stopped.result()]


async def _stop_actor(name: str, stop: Coroutine[Any, Any, None], events: EventLog) -> bool:
    try:
        async with asyncio.timeout(ACTOR_STOP_S):
            await stop
    except TimeoutError:
        why = f"{name} did not answer within {ACTOR_STOP_S:g} s"
    except Exception as error:  # noqa: BLE001  whatever one raises, the others have to be stopped too
        why = f"{name}: {type(error).__name__}: {error}"
    else:
        return True
    events.emit("stop.failed", why=why)
    return False

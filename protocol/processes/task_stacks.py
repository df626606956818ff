"""Stacks of asyncio tasks: all frames of a task's await chain, even while it is suspended.

asyncio itself shows only the outermost frame of a suspended task.  A task that waits for a task group lists the group's
tasks.
"""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import CoroutineType, FrameType

_ROOT = Path(__file__).resolve().parent.parent.parent
_ROOMS = frozenset({"protocol", "sandbox", "actors", "learner", "launch", "tests"})
"""Top-level packages of longshore; other directories may be an environment."""
_MOST_FRAMES = 100


async def _nothing() -> None: ...


def _wrapper_type() -> type:
    """Return the unnamed type of ``coroutine.__await__()``."""
    coroutine = _nothing()
    try:
        return type(coroutine.__await__())
    finally:
        coroutine.close()


_WRAPPER = _wrapper_type()
_KINDS = (("cr_frame", "cr_await"), ("gi_frame", "gi_yieldfrom"), ("ag_frame", "ag_await"))
"""Attributes of coroutines, generators and asynchronous generators."""

AwaitedNameLookup = Callable[[FrameType], str | None]
"""Returns the name of what a frame waits for, if known."""


@dataclass(frozen=True, slots=True)
class TaskStack:
    name: str
    frames: tuple[str, ...]
    """``file:line function``, the outermost first."""
    waits_for: str
    """Target of the innermost wait that is known; empty if none is."""
    group: tuple[str, ...] = ()
    """Names of the tasks that it waits for in a task group."""

    @property
    def innermost_frame(self) -> str:
        """Innermost frame in longshore's code, or else the innermost frame."""
        own = [frame for frame in self.frames if not frame.startswith("/")]
        return (own or list(self.frames) or ["nowhere"])[-1]


def collect_task_stacks(tasks: Iterable[asyncio.Task[object]], names: AwaitedNameLookup) -> tuple[TaskStack, ...]:
    """Return the stacks of all unfinished ``tasks``, sorted by name."""
    found = [_stack(task, names) for task in tasks if not task.done()]
    return tuple(sorted(found, key=lambda stack: stack.name))


def _stack(task: asyncio.Task[object], names: AwaitedNameLookup) -> TaskStack:
    frames = list(await_chain(task.get_coro()))
    known = [name for frame in frames if (name := names(frame)) is not None]
    group = _group(frames[-1]) if frames else ()
    return TaskStack(task.get_name(), tuple(map(_shown, frames)), known[-1] if known else "", group)


def await_chain(coroutine: object) -> Iterator[FrameType]:
    """Yield the frames of ``coroutine``'s await chain, the outermost first."""
    awaited: object | None = coroutine
    for _ in range(_MOST_FRAMES):
        frame, awaited = _awaited(awaited)
        if frame is not None:
            yield frame
        if awaited is None:
            return


def _awaited(awaitable: object) -> tuple[FrameType | None, object | None]:
    """Return the frame of a coroutine or generator, and what it awaits.

    It looks at attributes, not types: Cython has its own coroutine types without frames, and one of them awaits Ray
    actor methods through Python's wrapper.
    """
    if isinstance(awaitable, _WRAPPER):
        wrapped: list[object] = [each for each in gc.get_referents(awaitable) if type(each) is CoroutineType]
        return None, wrapped[0] if wrapped else None
    for frame, awaits in _KINDS:
        if hasattr(awaitable, awaits):
            found: object = getattr(awaitable, frame, None)
            return found if isinstance(found, FrameType) else None, getattr(awaitable, awaits)
    return None, None


def _group(innermost: FrameType) -> tuple[str, ...]:
    """Return the names of the tasks that a task group still waits for."""
    group = innermost.f_locals.get("self")
    if not isinstance(group, asyncio.TaskGroup):
        return ()
    tasks: set[asyncio.Task[object]] = getattr(group, "_tasks", set())
    return tuple(sorted(task.get_name() for task in tasks if not task.done()))


def _shown(frame: FrameType) -> str:
    code, path = frame.f_code, Path(frame.f_code.co_filename)
    own = path.is_relative_to(_ROOT) and path.relative_to(_ROOT).parts[0] in _ROOMS
    shown = path.relative_to(_ROOT) if own else path
    return f"{shown}:{frame.f_lineno} {code.co_qualname}"

"""The typed seam to Ray: the only file through which longshore's actors are started, called and killed.

An actor is a plain class.  ``spawn(Engine, ActorOptions(name="engine-0"), settings)`` starts one and gives a
``Remote[Engine]``; ``await engine.call(Engine.generate, request)`` calls it with the method's own types.  Invariants:

- What a method raises arrives as it was raised (its remote traceback is the ``__cause__``); Ray's own failures arrive
  as :class:`ActorDied`, :class:`ActorUnavailable` or :class:`RemoteError`, all ``InfraError``.
- Cancelling a call cancels the coroutine that runs it in the actor.
- ``ref`` starts a call and gives a :class:`Ref`, whose value travels from the actor that makes it to the actor that
  uses it without passing through the caller.
- An actor ends with the last handle to it, with ``kill``, or with Ray.
"""

from __future__ import annotations

import asyncio
import gc
import os
import re
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any, Concatenate, Generic, ParamSpec, TypeVar, cast, overload

import ray
from ray import exceptions as ray_errors
from ray.actor import ActorHandle
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy, PlacementGroupSchedulingStrategy

from actors.runtime.placement_groups import PlacementBundle
from protocol.errors import InfraError
from protocol.processes.stack_dumps import register_stack_dump
from protocol.processes.task_stacks import TaskStack, collect_task_stacks
from protocol.run_directory.process_log import ProcessLog

T = TypeVar("T")
R = TypeVar("R")
P = ParamSpec("P")

_CONCURRENT = "beside"
"""Ray's name for the threads of :meth:`Remote.beside`."""


class RemoteError(InfraError):
    """Ray could not bring a call to its end, or its value back."""

    def __init__(self, actor: str, why: str) -> None:
        super().__init__(actor, why)
        self.actor, self.why = actor, why

    def __str__(self) -> str:
        return f"actor {self.actor}: {self.why}"


class ActorDied(RemoteError):
    """The actor's process is gone; the call may or may not have taken effect."""


class ActorUnavailable(RemoteError):
    """The actor cannot be reached at the moment (it is being restarted, say); the call may have taken effect."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ActorOptions:
    """How and where an actor runs."""

    name: str
    """Unique among the live actors of the Ray session; it stands in errors and in Ray's own lists."""
    num_cpus: float = 0
    num_gpus: float = 0
    node_id: str | None = None
    """Ray node id that the actor is bound to; None lets Ray choose."""
    bundle: PlacementBundle | None = None
    """Held for the actor: it counts, and not ``node_id``."""
    max_restarts: int = 0
    max_task_retries: int = 0
    """How often Ray repeats a call whose actor died and was restarted; −1 for always.  Only for methods that may run
    twice."""
    concurrent_calls: int = 0
    """Calls by :meth:`Remote.beside` that run at once, each in a thread of its own beside the other calls."""
    max_concurrency: int | None = None
    """Calls that run at once; None is Ray's default: 1000 for a class with async methods, else 1."""
    env: dict[str, str] = field(default_factory=dict[str, str])
    """Environment variables of the actor's process."""
    log: ProcessLog | None = None
    """Where the actor's process logs, after a restart too; None leaves it to Ray."""


@dataclass(frozen=True, slots=True)
class ResultRef(Generic[R]):
    """A value that some actor is making or has made."""

    actor: str
    object_ref: ray.ObjectRef[Any]

    def argument(self) -> R:
        """This reference, typed as its value, for use as an argument of ``Remote.call`` or ``Remote.ref`` and nowhere
        else: the receiving method gets the value itself.  Only a whole argument is resolved, not one inside a list."""
        return cast("R", self)

    async def get(self) -> R:
        """The value, brought to this process.  Raises what the method raised, or a :class:`RemoteError`."""
        return cast("R", await _value(self.actor, self.object_ref))


class Remote(Generic[T]):
    """A handle to an actor of class ``T``.

    It travels to other actors as the actor's name, so that an actor which holds it can be restarted by Ray long after
    the message that brought it; whoever spawned the actor keeps it alive.
    """

    __slots__ = ("_handle", "name")

    def __init__(self, name: str, handle: ActorHandle[Any] | None = None) -> None:
        self.name, self._handle = name, handle

    def __reduce__(self) -> tuple[type[Remote[T]], tuple[str]]:
        return (Remote, (self.name,))

    def __repr__(self) -> str:
        return f"Remote({self.name!r})"

    @property
    def handle(self) -> ActorHandle[Any]:
        """Ray's own.  Raises :class:`ActorDied` when there is no actor of this name."""
        if self._handle is None:
            try:
                found: object = ray.get_actor(self.name)  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]  untyped in Ray
            except ValueError as error:
                raise ActorDied(self.name, "there is no such actor") from error
            self._handle = cast("ActorHandle[Any]", found)
        return self._handle

    @overload
    async def call(
        self, method: Callable[Concatenate[T, P], Coroutine[Any, Any, R]], *args: P.args, **kwargs: P.kwargs
    ) -> R: ...
    @overload
    async def call(self, method: Callable[Concatenate[T, P], R], *args: P.args, **kwargs: P.kwargs) -> R: ...
    async def call(self, method: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Run ``method`` in the actor and give its result.  Raises what it raised, or a :class:`RemoteError`."""
        return await _value(self.name, self._start(method, args, kwargs))

    async def call_once(
        self, method: Callable[Concatenate[T, P], Coroutine[Any, Any, R]], *args: P.args, **kwargs: P.kwargs
    ) -> R:
        """:meth:`call`, which Ray does not repeat where the actor died and was restarted: a :class:`RemoteError`."""
        return cast("R", await _value(self.name, self._start(method, args, kwargs, max_task_retries=0)))

    @overload
    def submit(
        self, method: Callable[Concatenate[T, P], Coroutine[Any, Any, R]], *args: P.args, **kwargs: P.kwargs
    ) -> ResultRef[R]: ...
    @overload
    def submit(self, method: Callable[Concatenate[T, P], R], *args: P.args, **kwargs: P.kwargs) -> ResultRef[R]: ...
    def submit(self, method: Callable[..., Any], *args: Any, **kwargs: Any) -> ResultRef[Any]:
        """Start ``method`` in the actor and give a reference to its result, without waiting."""
        return ResultRef(self.name, self._start(method, args, kwargs))

    def submit_concurrent(
        self, method: Callable[Concatenate[T, P], R], *args: P.args, **kwargs: P.kwargs
    ) -> ResultRef[R]:
        """:meth:`ref` for a method that may run beside other calls of an actor which takes one at a time; its options
        say for how many (:attr:`ActorOptions.beside`)."""
        return ResultRef(self.name, self._start(method, args, kwargs, concurrency_group=_CONCURRENT))

    async def wait_ready(self) -> None:
        """Return when the actor's constructor has returned.  Raises what it raised, or :class:`ActorDied`."""
        await _value(self.name, self.handle.__ray_ready__.remote())

    async def pid(self) -> int:
        """The actor's process: another one after a restart.  Raises a :class:`RemoteError`."""
        return cast("int", await _value(self.name, self.handle.__ray_call__.remote(_own_pid)))

    async def offer_stacks(self, path: Path, name: str) -> None:
        """Let the actor's process offer the stacks of its threads in ``path`` (:mod:`protocol.processes.stack_dumps`).  Raises a
        :class:`RemoteError`."""
        await _value(self.name, self.handle.__ray_call__.remote(_offer_stacks, str(path), name))

    async def list_tasks(self) -> tuple[TaskStack, ...]:
        """Every asyncio task of the actor, and where it waits; none of an actor without async methods.  Raises a
        :class:`RemoteError`; never ends where the actor's event loop is held up: then its stacks tell."""
        return cast("tuple[TaskStack, ...]", await _value(self.name, self.handle.__ray_call__.remote(_own_tasks)))

    def _start(
        self, method: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], **options: str | int
    ) -> ray.ObjectRef[Any]:
        bound = getattr(self.handle, method.__name__)
        if options:
            bound = bound.options(**options)
        return bound.remote(*map(_unwrapped, args), **{key: _unwrapped(value) for key, value in kwargs.items()})


def spawn_actor(cls: Callable[P, T], options: ActorOptions, /, *args: P.args, **kwargs: P.kwargs) -> Remote[T]:
    """Start an actor that holds ``cls(*args, **kwargs)``; returns at once (see :meth:`Remote.ready`).

    The class is imported by name in the actor's process, so its module must be importable there.
    """
    settings: dict[str, Any] = {
        "name": options.name,
        "num_cpus": options.num_cpus,
        "num_gpus": options.num_gpus,
        "max_restarts": options.max_restarts,
        "max_task_retries": options.max_task_retries,
    }
    if options.max_concurrency is not None:
        settings["max_concurrency"] = options.max_concurrency
    if options.bundle is not None:
        place = options.bundle
        settings["scheduling_strategy"] = PlacementGroupSchedulingStrategy(place.group, place.index)
    elif options.node_id is not None:
        settings["scheduling_strategy"] = NodeAffinitySchedulingStrategy(options.node_id, soft=False)
    if options.env:
        settings["runtime_env"] = {"env_vars": dict(options.env)}
    remote = cast("Callable[..., Any]", ray.remote)
    held = _logging(cast("type[Any]", cls), options.log) if options.log is not None else cls
    actor_class = (
        remote(concurrency_groups={_CONCURRENT: options.concurrent_calls})(held)
        if options.concurrent_calls
        else remote(held)
    )
    return Remote(options.name, actor_class.options(**settings).remote(*args, **kwargs))


def _logging(cls: type[Any], log: ProcessLog) -> type[Any]:
    """``cls``, which begins to log before it is made."""

    class Logged(cls):
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            log.install_handler()
            super().__init__(*args, **kwargs)  # pyright: ignore[reportUnknownMemberType]  of whatever class it is

    Logged.__name__ = Logged.__qualname__ = cls.__name__
    return Logged


def kill_actor(remote: Remote[Any]) -> None:
    """End an actor's process at once, without its clean-up and without a restart.  Harmless on a dead one."""
    ray.kill(remote.handle, no_restart=True)  # pyright: ignore[reportUnknownMemberType]  # Ray's handle is untyped


def restart_actor(remote: Remote[Any]) -> None:
    """End an actor's process at once, also one that is stopped or never answers; Ray starts it again as often as
    ``max_restarts`` allows.  Harmless on a dead one."""
    ray.kill(remote.handle, no_restart=False)  # pyright: ignore[reportUnknownMemberType]  # Ray's handle is untyped


def _own_pid(actor: object) -> int:
    del actor
    return os.getpid()


def _offer_stacks(actor: object, path: str, name: str) -> None:
    del actor
    register_stack_dump(Path(path), name)


def _own_tasks(actor: object) -> tuple[TaskStack, ...]:
    """Ray runs this in a thread beside the actor's event loops, which are found among all objects."""
    del actor
    loops = [each for each in gc.get_objects() if issubclass(type(each), asyncio.AbstractEventLoop)]
    return collect_task_stacks([task for loop in loops for task in asyncio.all_tasks(loop)], describe_remote_call)


_CALLS = {vars(Remote)[name].__code__ for name in ("call", "call_once")}


def describe_remote_call(frame: FrameType) -> str | None:
    """``actor.method`` where ``frame`` waits for a call of another actor."""
    names = frame.f_locals
    if frame.f_code in _CALLS:
        return f"{short_actor_name(names['self'].name)}.{names['method'].__name__}"
    if frame.f_code is vars(ResultRef)["get"].__code__:
        return short_actor_name(names["self"].actor)
    return None


def short_actor_name(actor: str) -> str:
    """Without the run's."""
    return actor.rpartition("/")[2]


def _unwrapped(argument: object) -> object:
    return cast("ResultRef[Any]", argument).object_ref if isinstance(argument, ResultRef) else argument


async def _value(actor: str, object_ref: ray.ObjectRef[Any]) -> Any:
    try:
        return await object_ref
    except asyncio.CancelledError:
        ray.cancel(object_ref, recursive=False)  # pyright: ignore[reportUnknownMemberType]  # untyped in Ray
        raise
    except ray_errors.TaskCancelledError as error:
        raise RemoteError(actor, "the call was cancelled by someone else") from error
    except ray_errors.ActorUnavailableError as error:
        raise ActorUnavailable(actor, _first_line(error)) from error
    except ray_errors.ActorDiedError as error:
        raise ActorDied(actor, _why_dead(error)) from error
    except ray_errors.RayTaskError as error:
        if isinstance(error.cause, Exception):
            raise error.cause from error
        raise RemoteError(actor, _first_line(error)) from error
    except ray_errors.RayError as error:
        raise RemoteError(actor, _first_line(error)) from error


def _why_dead(error: ray_errors.ActorDiedError) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    if error.actor_init_failed:
        return f"its constructor raised {lines[-1]}"
    told = " ".join(line for line in lines if not line.startswith(_DEATH_DETAILS))
    found = _EXIT.search(told)
    return f"its process ended: {found['detail']} ({found['type']})" if found else told


_DEATH_DETAILS = ("class_name:", "actor_id:", "pid:", "name:", "namespace:", "ip:")
_EXIT = re.compile(
    r"Worker exit type: (?P<type>\w+) Worker exit detail: (?P<detail>.*?)\.?( Some common causes include: .*)?$"
)


def _first_line(error: Exception) -> str:
    return next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)

"""The typed handle through which longshore's actors are started, called and killed.

An actor is a plain class.  ``spawn_actor(Engine, ActorOptions(name="engine-0"), settings)`` starts one and returns a
``Remote[Engine]``; ``await engine.call(Engine.generate, request)`` calls it with the method's own types.  Invariants:

- A method's exception reaches the caller unchanged, with its remote traceback as ``__cause__``; Ray's own failures
  arrive as the errors of :mod:`actors.runtime.remote_errors`, all of them ``InfraError``.
- Cancelling a call cancels the coroutine that runs it in the actor.
- ``submit`` starts a call and returns a :class:`ResultRef`.  Its value travels from the actor that makes it to the
  actor that uses it, without passing through the caller.
- An actor ends with the last handle to it, with :func:`kill_actor`, or with Ray.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Concatenate, Generic, ParamSpec, TypeVar, cast, overload

import ray
from ray.actor import ActorHandle
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy, PlacementGroupSchedulingStrategy

from actors.runtime.placement_groups import PlacementBundle
from actors.runtime.remote_errors import ActorDied, wait_for_result
from actors.runtime.task_inspection import list_own_tasks, offer_thread_stacks, register_call_frame, report_pid
from protocol.processes.task_stacks import TaskStack
from protocol.run_directory.process_log import ProcessLog

T = TypeVar("T")
R = TypeVar("R")
P = ParamSpec("P")

_CONCURRENT = "concurrent"
"""Name of the Ray concurrency group that runs the calls of :meth:`Remote.submit_concurrent`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ActorOptions:
    """Name, placement and restart policy of an actor."""

    name: str
    """The actor's name, unique among the live actors of the Ray session; errors and Ray's own lists show it."""
    num_cpus: float = 0
    num_gpus: float = 0
    node_id: str | None = None
    """Ray node id that the actor is bound to; None lets Ray choose."""
    bundle: PlacementBundle | None = None
    """A reserved placement bundle; if it is given, ``node_id`` is ignored."""
    max_restarts: int = 0
    max_task_retries: int = 0
    """Maximum number of times that Ray repeats a call whose actor died and was restarted; −1 means no limit.  Only for
    actors whose methods may run twice."""
    concurrent_calls: int = 0
    """Number of :meth:`Remote.submit_concurrent` calls that run at once, each in its own thread, in parallel with the
    other calls."""
    max_concurrency: int | None = None
    """Maximum number of calls that run at once; None is Ray's default: 1000 for a class with async methods, else 1."""
    env: dict[str, str] = field(default_factory=dict[str, str])
    """Environment variables of the actor's process."""
    log: ProcessLog | None = None
    """Log of the actor's process, which a restarted process continues; None leaves logging to Ray."""


@dataclass(frozen=True, slots=True)
class ResultRef(Generic[R]):
    """A reference to a value that an actor is computing or has computed."""

    actor: str
    object_ref: ray.ObjectRef[Any]

    def argument(self) -> R:
        """Return this reference, typed as its value, for use as an argument of ``Remote.call`` or ``Remote.submit``
        only: the receiving method gets the value itself.  Ray resolves whole arguments, not references inside a
        list."""
        return cast("R", self)

    async def get(self) -> R:
        """Fetch the value to this process.  Raises what the method raised, or a ``RemoteError``."""
        return cast("R", await wait_for_result(self.actor, self.object_ref))


class Remote(Generic[T]):
    """A handle to an actor of class ``T``.

    It is pickled as the actor's name only, so Ray can restart an actor that received it as an argument.  The process
    that spawned the actor must keep its handle, or the actor ends.
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
        """Ray's own handle.  Raises :class:`ActorDied` if there is no actor with this name."""
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
        """Run ``method`` in the actor and return its result.  Raises what it raised, or a ``RemoteError``."""
        return await wait_for_result(self.name, self._start(method, args, kwargs))

    async def call_once(
        self, method: Callable[Concatenate[T, P], Coroutine[Any, Any, R]], *args: P.args, **kwargs: P.kwargs
    ) -> R:
        """Call like :meth:`call`, but never repeated by Ray: if the actor dies, this raises a ``RemoteError``."""
        return cast("R", await wait_for_result(self.name, self._start(method, args, kwargs, max_task_retries=0)))

    @overload
    def submit(
        self, method: Callable[Concatenate[T, P], Coroutine[Any, Any, R]], *args: P.args, **kwargs: P.kwargs
    ) -> ResultRef[R]: ...
    @overload
    def submit(self, method: Callable[Concatenate[T, P], R], *args: P.args, **kwargs: P.kwargs) -> ResultRef[R]: ...
    def submit(self, method: Callable[..., Any], *args: Any, **kwargs: Any) -> ResultRef[Any]:
        """Start ``method`` in the actor and return a reference to its result without waiting."""
        return ResultRef(self.name, self._start(method, args, kwargs))

    def submit_concurrent(
        self, method: Callable[Concatenate[T, P], R], *args: P.args, **kwargs: P.kwargs
    ) -> ResultRef[R]:
        """Submit a method that runs in parallel with the other calls of an actor that takes one call at a time;
        :attr:`ActorOptions.concurrent_calls` limits how many."""
        return ResultRef(self.name, self._start(method, args, kwargs, concurrency_group=_CONCURRENT))

    async def pid(self) -> int:
        """Return the process id of the actor, which changes with a restart.  Raises a ``RemoteError``."""
        return cast("int", await wait_for_result(self.name, self.handle.__ray_call__.remote(report_pid)))

    async def offer_stacks(self, path: Path, name: str) -> None:
        """Let the actor's process write the stacks of its threads to ``path`` on request
        (:mod:`protocol.processes.stack_dumps`).  Raises a ``RemoteError``."""
        await wait_for_result(self.name, self.handle.__ray_call__.remote(offer_thread_stacks, str(path), name))

    async def list_tasks(self) -> tuple[TaskStack, ...]:
        """Return every asyncio task of the actor with its stack; an actor without async methods has none.

        Raises a ``RemoteError``.  Never returns while the actor's event loop is blocked; use :meth:`offer_stacks`
        then."""
        return cast(
            "tuple[TaskStack, ...]", await wait_for_result(self.name, self.handle.__ray_call__.remote(list_own_tasks))
        )

    def _start(
        self, method: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], **options: str | int
    ) -> ray.ObjectRef[Any]:
        bound = getattr(self.handle, method.__name__)
        if options:
            bound = bound.options(**options)
        return bound.remote(
            *map(_unwrap_reference, args), **{key: _unwrap_reference(value) for key, value in kwargs.items()}
        )


def spawn_actor(cls: Callable[P, T], options: ActorOptions, /, *args: P.args, **kwargs: P.kwargs) -> Remote[T]:
    """Start an actor that holds ``cls(*args, **kwargs)`` and return at once.

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
        bundle = options.bundle
        settings["scheduling_strategy"] = PlacementGroupSchedulingStrategy(bundle.group, bundle.index)
    elif options.node_id is not None:
        settings["scheduling_strategy"] = NodeAffinitySchedulingStrategy(options.node_id, soft=False)
    if options.env:
        settings["runtime_env"] = {"env_vars": dict(options.env)}
    remote = cast("Callable[..., Any]", ray.remote)
    held = _with_logging(cast("type[Any]", cls), options.log) if options.log is not None else cls
    actor_class = (
        remote(concurrency_groups={_CONCURRENT: options.concurrent_calls})(held)
        if options.concurrent_calls
        else remote(held)
    )
    return Remote(options.name, actor_class.options(**settings).remote(*args, **kwargs))


def _with_logging(cls: type[Any], log: ProcessLog) -> type[Any]:
    """Return a subclass of ``cls`` that installs the log handler before its constructor runs."""

    class Logged(cls):
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            log.install_handler()
            super().__init__(*args, **kwargs)  # pyright: ignore[reportUnknownMemberType]  # any class

    Logged.__name__ = Logged.__qualname__ = cls.__name__
    return Logged


def kill_actor(remote: Remote[Any]) -> None:
    """End the actor's process at once, without clean-up or restart.  Harmless if it is dead already."""
    ray.kill(remote.handle, no_restart=True)  # pyright: ignore[reportUnknownMemberType]  # Ray's handle is untyped


def restart_actor(remote: Remote[Any]) -> None:
    """End the actor's process at once, even if it is stopped or hangs; Ray restarts it up to ``max_restarts`` times.
    Harmless if it is dead already."""
    ray.kill(remote.handle, no_restart=False)  # pyright: ignore[reportUnknownMemberType]  # Ray's handle is untyped


def short_actor_name(actor: str) -> str:
    """Return an actor's name without the run's prefix."""
    return actor.rpartition("/")[2]


def _unwrap_reference(argument: object) -> object:
    return cast("ResultRef[Any]", argument).object_ref if isinstance(argument, ResultRef) else argument


def _describe_call(names: Mapping[str, Any]) -> str:
    return f"{short_actor_name(names['self'].name)}.{names['method'].__name__}"


for _method in ("call", "call_once"):
    register_call_frame(vars(Remote)[_method].__code__, _describe_call)
register_call_frame(vars(ResultRef)["get"].__code__, lambda names: short_actor_name(names["self"].actor))

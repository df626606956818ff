"""Actors without Ray: a handle that calls a local object, with :class:`actors.runtime.remote.Remote`'s own interface.

The object needs only the methods that the code under test calls; they are found by name, as Ray finds them.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, TypeVar

from actors.runtime.remote import Remote, ResultRef

T = TypeVar("T")


class LocalRemote(Remote[T]):
    """Calls ``target``'s methods directly; what they raise is raised."""

    def __init__(self, target: object, name: str = "local") -> None:
        super().__init__(name)
        self.target = target

    async def call(self, method: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        arguments = [await argument.get() if isinstance(argument, LocalRef) else argument for argument in args]
        result = getattr(self.target, method.__name__)(*arguments, **kwargs)
        return await result if inspect.isawaitable(result) else result

    async def call_once(self, method: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        return await self.call(method, *args, **kwargs)

    def submit(self, method: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        return LocalRef(self, method, args, kwargs)

    def submit_concurrent(self, method: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        return LocalRef(self, method, args, kwargs)


class LocalRef(ResultRef[Any]):
    """Makes its value when it is first asked for."""

    def __init__(
        self, remote: LocalRemote[Any], method: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> None:
        super().__init__(remote.name, None)
        object.__setattr__(self, "_make", lambda: remote.call(method, *args, **kwargs))
        object.__setattr__(self, "_made", [])

    def argument(self) -> Any:
        return self

    async def get(self) -> Any:
        if not self._made:
            self._made.append(await self._make())
        return self._made[0]

"""Runs an object in a separate process, so that its memory and threads are its own."""

from __future__ import annotations

from collections.abc import Callable, Generator
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from multiprocessing import get_context
from typing import Concatenate, Generic, ParamSpec, TypeVar, cast

from protocol.errors import InfraError

Made = TypeVar("Made")
Result = TypeVar("Result")
P = ParamSpec("P")

_made: list[object] = []
"""The object, in its process."""


class IsolatedProcess(Generic[Made]):
    """An object in a separate process."""

    def __init__(self, pool: ProcessPoolExecutor) -> None:
        self._pool = pool

    def call(self, function: Callable[Concatenate[Made, P], Result], *args: P.args, **kwargs: P.kwargs) -> Result:
        """Call ``function(object, …)`` in the process.  Raises InfraError if the process has died, and the function's
        own errors."""
        try:
            return self._pool.submit(_call, function, *args, **kwargs).result()
        except BrokenProcessPool as error:
            raise InfraError("a process of the measurement died; was it out of memory? Look at dmesg") from error


@contextmanager
def isolate(make: Callable[[], Made]) -> Generator[IsolatedProcess[Made]]:
    """Start a process that calls ``make``, which is pickled by name."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn"), initializer=_begin, initargs=(make,)) as pool:
        yield IsolatedProcess[Made](pool)


def _begin(make: Callable[[], object]) -> None:
    _made.append(make())


def _call(function: Callable[Concatenate[Made, P], Result], *args: P.args, **kwargs: P.kwargs) -> Result:
    return function(cast("Made", _made[0]), *args, **kwargs)

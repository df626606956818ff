"""The candidate as test code sees it: its functions and objects, which live in a separate process.

No code of the candidate runs here, and what it sends becomes only data and the errors that it raised. So it cannot
claim to be equal: whatever a test compares with its own values is data, or unequal. Every other object of the candidate
is a proxy (:mod:`sandbox.tasks.code_runner.proxies`).

Runs in the sandbox, on any Python from 3.9.
"""

from __future__ import annotations

import builtins
import itertools
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Collection, Iterator
from contextlib import suppress
from typing import Any, cast

from sandbox.tasks.code_runner.candidate_channel import CandidateChannel
from sandbox.tasks.code_runner.candidate_errors import CandidateErrors
from sandbox.tasks.code_runner.candidate_server import error_ancestry
from sandbox.tasks.code_runner.proxies import (
    MAX_ITEMS,
    STANDARD_ATTRIBUTES,
    CandidateError,
    ClassProxy,
    InstanceIteratorProxy,
    InstanceProxy,
    IteratorProxy,
    ObjectProxy,
    ResultProxy,
    proxy_class_for,
    proxy_number,
)
from sandbox.tasks.code_runner.value_codec import (
    MUTABLE_TYPES,
    UncrossableValueError,
    named_tuple,
    pack,
    unpack,
    update_in_place,
)


class CandidateClient:
    """Requests to a loaded program, values in both directions, and one proxy for each of its objects."""

    def __init__(self, connection: socket.socket, process: subprocess.Popen[Any]) -> None:
        self._channel, self._process = CandidateChannel(connection), process
        self._errors = CandidateErrors(self._unpack)
        self._functions: list[Callable[..., object]] = []
        """Functions of the tests that the program was given, by number."""
        self._proxies: dict[tuple[int, type[ObjectProxy]], ObjectProxy] = {}
        self._lock = threading.RLock()
        """One request at a time.  Reentrant: a callback may make another request from the same thread."""
        self._recursion_limit = sys.getrecursionlimit()
        self._inspected: list[object] = []
        self.types: Collection[str] = ()
        """Names in the tests that may be Python's types. These arrive as themselves; others can only be called, because
        ``set.union(expected)`` would reveal the expectation."""
        self.classes: Collection[str] = ()
        """Capitalized names that the tests use as classes."""
        self.request_count = 0
        """Number of requests of the tests to the candidate."""

    def close(self) -> None:
        """Kill the program and every process in its session."""
        self._channel.close()
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()

    def get_name(self, name: str, is_class: bool) -> object:
        """Return what the program defines as ``name``. Raises NameError if it does not."""
        found = self._exchange("name", [name], proxy_class_for(name, is_class))[0]
        self.request_count += not isinstance(found, ObjectProxy)
        return found

    def get_attribute(self, proxy: ObjectProxy, name: str) -> object:
        """Return an attribute of the candidate's object."""
        kind = proxy_class_for(name, name in self.classes) if isinstance(proxy, ClassProxy) else ObjectProxy
        return self.request("getattr", proxy, name, kind=kind)

    def get_entry_point(self, name: str) -> Callable[..., object]:
        """Return the function ``name``, or the method of that name of ``Solution``."""
        return cast("Callable[..., object]", self._exchange("entry", [name])[0])

    def note_inspected(self, value: object) -> object:
        """Remember that a test compares ``value`` with literals after a call, so that a call may change it."""
        self._inspected.append(value)
        return value

    def as_instance(self, value: object) -> object:
        """Return ``value`` as an instance: the test uses an attribute that no standard type has."""
        if not isinstance(value, ObjectProxy) or isinstance(value, InstanceProxy):
            return value
        return self._proxy(
            proxy_number(value), InstanceIteratorProxy if isinstance(value, IteratorProxy) else InstanceProxy
        )

    def as_identity(self, value: object) -> object:
        """Return the same proxy for all that stand for one object of the candidate."""
        return self._proxy(proxy_number(value), ObjectProxy) if isinstance(value, ObjectProxy) else value

    def get_type(self, value: object) -> object:
        """Return the type of ``value``.  A class of the candidate can be compared and has a name."""
        return self.request("type", value, kind=ObjectProxy) if isinstance(value, ObjectProxy) else type(value)

    def request(self, what: str, *args: object, kind: type[ObjectProxy]) -> Any:
        """Request an operation on behalf of a test; an object in the reply becomes a proxy of class ``kind``."""
        self.request_count += 1
        return self._exchange(what, list(args), kind)[0]

    def call(self, proxy: ObjectProxy, args: tuple[object, ...], kwargs: dict[str, object]) -> object:
        """Call a function or class of the candidate.

        Arguments that it changed are changed here too if it returns None or the test inspects them. Otherwise they stay
        unchanged: a test that computes its expectation from an argument would use the candidate's value.
        """
        self.request_count += 1
        kind = ResultProxy if type(proxy) is ClassProxy else ObjectProxy
        value, changes = self._exchange("call", [proxy, args, kwargs], kind)
        given = {str(at): each for at, each in enumerate(args)} | kwargs
        for key, packed in changes.items():
            old = given.get(key)
            if isinstance(old, MUTABLE_TYPES) and (value is None or any(each is old for each in self._inspected)):
                self._update_argument(old, packed)
        return value

    def _update_argument(self, old: object, packed: Any) -> None:
        new = self._unpack(packed)
        if not isinstance(new, type(old)):
            raise CandidateError("an argument became another type")
        update_in_place(old, new)

    def _exchange(
        self, what: str, args: list[object], kind: type[ObjectProxy] = ObjectProxy
    ) -> tuple[Any, dict[str, Any]]:
        """Return the reply's value and the changed arguments, packed.  Raises the error that the program raised."""
        with self._lock:
            if self._recursion_limit != (limit := sys.getrecursionlimit()):
                self._recursion_limit = limit
                self._exchange("setrecursionlimit", [limit])
            packed = [self._pack(each) for each in args]
            reply = self._channel.request(what, packed, self._run_callback)
            if reply[0] == "error":
                raise self._errors.rebuild(reply, may_end_iteration=what == "next")
            return self._unpack(reply[1], kind), reply[2]

    def _run_callback(self, number: int, args: Any, kwargs: Any) -> list[Any]:
        given, named = self._unpack(args), self._unpack(kwargs)
        try:
            return ["value", self._pack(self._functions[number](*given, **named))]
        except Exception as error:  # noqa: BLE001  the test's function raises it for the candidate to see
            known = (each.__name__ for each in type(error).__mro__ if error_ancestry(each) == each.__name__)
            return ["error", next(known), str(error)]

    def _pack(self, value: object) -> Any:
        return pack(value, self._pack_other)

    def _pack_other(self, value: object) -> Any:
        if isinstance(value, ObjectProxy):
            return ["thing", proxy_number(value)]
        if isinstance(value, Iterator):
            items = list(itertools.islice(cast("Iterator[object]", value), MAX_ITEMS + 1))
            if len(items) > MAX_ITEMS:
                raise UncrossableValueError(f"an iterator of more than {MAX_ITEMS} items")
            return ["iterator", self._pack(items)]
        if not callable(value):
            raise UncrossableValueError(f"{type(value).__name__} does not cross to the answer")
        module, name = getattr(value, "__module__", None), getattr(value, "__qualname__", "")
        if module and getattr(sys.modules.get(module), name, None) is value:
            return ["named function", module, name]
        self._functions.append(value)
        return ["function", len(self._functions) - 1]

    def _unpack(self, packed: Any, kind: type[ObjectProxy] = ObjectProxy) -> Any:
        """Return the value; an object of the candidate, if it is the whole value, as a proxy of class ``kind``."""
        whole = kind if isinstance(packed, list) and packed[:1] in (["thing"], ["iterator"]) else ObjectProxy

        def unpack_other(tagged: list[Any]) -> object:
            tag, content, *rest = tagged
            if tag == "named":
                return _named_tuple(content, rest[0], [self._unpack(each) for each in rest[1]])
            if tag == "exception":
                return self._errors.error_class(content)
            if tag == "type" and isinstance(found := getattr(builtins, str(content), None), type):
                return found if content in self.types else _maker(found)
            if tag == "thing" and isinstance(content, int):
                return self._proxy(content, whole)
            if tag == "iterator" and isinstance(content, int):
                return self._proxy(content, InstanceIteratorProxy if whole is InstanceProxy else IteratorProxy)
            raise ValueError("no such value")

        try:
            return unpack(packed, unpack_other)
        except Exception as error:
            raise CandidateError(f"{type(error).__name__}: {error}") from error

    def _proxy(self, number: int, kind: type[ObjectProxy]) -> ObjectProxy:
        """Return the one proxy of this number and class."""
        return self._proxies.setdefault((number, kind), kind(self, number))


def _named_tuple(name: str, fields: list[str], values: list[object]) -> tuple[object, ...]:
    """Make a named tuple; a plain tuple where a field would hide an attribute of a standard type."""
    fields = [str(each) for each in fields]
    return tuple(values) if STANDARD_ATTRIBUTES.intersection(fields) else named_tuple(name, fields, values)


def _maker(kind: type) -> Callable[..., object]:
    """Return a function that makes values of ``kind``, without the type's methods."""

    def make(*args: object, **kwargs: object) -> object:
        return kind(*args, **kwargs)

    make.__name__ = kind.__name__
    return make

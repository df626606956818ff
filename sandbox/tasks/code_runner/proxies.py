"""Proxies for the candidate's objects that are not data. Every use of one is a request to the candidate's process.

An :class:`ObjectProxy` (a function, a class, an object) can be called and has attributes. It has none of the standard
types' methods and no length, items or order: a candidate that should return a list but returns an object instead could
answer each request with what the test expects. Two proxies are equal if the candidate says so, since both are its own.

A :class:`ClassProxy` is a capitalized name that a test calls or whose attributes it uses. Calling it makes a
:class:`ResultProxy`; so are constants and the results of operators (``a + b``).  A result has a length, items, a text,
and operators with other proxies, but is never given the test's data.

An :class:`InstanceProxy` is what the test must mean as an object (:mod:`~sandbox.tasks.code_runner.object_inference`).
It has methods and operators with data too, and is unequal to all data.  What its methods return and its attributes hold
is a plain ObjectProxy again: an area is a number.

Several proxies may stand for one object; they are equal, and ``CandidateClient.as_identity`` returns one for all. An
iterator requests each item, up to MAX_ITEMS, and ends once. Only requesting an iterator's next item may raise
StopIteration; anywhere else that is an error.

Runs in the sandbox, on any Python from 3.9.
"""

from __future__ import annotations

import operator
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import date, datetime, timedelta, timezone
from datetime import time as clock_time
from importlib import import_module
from operator import attrgetter
from typing import Any, Protocol, cast

MAX_ITEMS = 100_000
"""Maximum number of items of an iterator that crosses, in either direction."""
_DUNDERS = frozenset(("__name__", "__doc__", "__dict__", "__wrapped__"))


def _standard_names() -> Iterator[str]:
    kinds: list[type] = [str, bytes, bytearray, int, float, complex, list, dict, set, frozenset, tuple, range, slice]
    kinds += [deque, Counter, defaultdict, OrderedDict, date, datetime, clock_time, timedelta, timezone]
    for module, name in (("decimal", "Decimal"), ("fractions", "Fraction")):
        with suppress(ImportError):
            kinds.append(getattr(import_module(module), name))
    yield from (name for kind in kinds for name in dir(kind) if not name.startswith("_"))
    yield from ("_asdict", "_fields", "_make", "_replace")


STANDARD_ATTRIBUTES = frozenset(_standard_names())
"""Attributes of the standard types, whose values cross as data."""


class CandidateError(Exception):
    """The candidate gave no reply that can be compared."""


class ProxyOwner(Protocol):
    """The connection to the candidate that answers for its proxies."""

    def request(self, what: str, *args: object, kind: type[ObjectProxy]) -> Any:
        """Request an operation; an object in the reply becomes a proxy of class ``kind``."""
        ...

    def call(self, proxy: ObjectProxy, args: tuple[object, ...], kwargs: dict[str, object]) -> object:
        """Call a function or class of the candidate."""
        ...

    def get_attribute(self, proxy: ObjectProxy, name: str) -> object:
        """Return an attribute of the candidate's object."""
        ...


class ObjectProxy:
    """A function, class or object of the candidate."""

    __slots__ = ("__number", "__owner")
    __owner: ProxyOwner

    def __init__(self, owner: ProxyOwner, number: int) -> None:
        object.__setattr__(self, "_ObjectProxy__owner", owner)
        object.__setattr__(self, "_ObjectProxy__number", number)

    def __call__(self, *args: object, **kwargs: object) -> object:
        return self.__owner.call(self, args, kwargs)

    def __getattr__(self, name: str) -> Any:
        found: object = None
        if not name.startswith("__") or name in _DUNDERS:
            found = self.__owner.get_attribute(self, name)
            if not callable(found) or name not in STANDARD_ATTRIBUTES or isinstance(self, InstanceProxy):
                return found
        raise AttributeError(f"the answer's own object has no {name} here")

    def __setattr__(self, name: str, value: object) -> None:
        _request(self, "setattr", name, value)

    def __delattr__(self, name: str) -> None:
        _request(self, "delattr", name)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, ObjectProxy):
            return NotImplemented
        return proxy_number(self) == proxy_number(other) or bool(_request(self, "eq", other) is True)

    def __hash__(self) -> int:
        return int(_request(self, "hash"))

    def __instancecheck__(self, value: object) -> bool:
        return (
            isinstance(value, ObjectProxy) and self.__owner.request("isinstance", value, self, kind=ObjectProxy) is True
        )

    def __subclasscheck__(self, value: object) -> bool:
        return (
            isinstance(value, ObjectProxy) and self.__owner.request("issubclass", value, self, kind=ObjectProxy) is True
        )


_owner_of = cast("Callable[[ObjectProxy], ProxyOwner]", attrgetter("_ObjectProxy__owner"))
proxy_number = cast("Callable[[ObjectProxy], int]", attrgetter("_ObjectProxy__number"))


def _request(proxy: ObjectProxy, what: str, *args: object) -> Any:
    return _owner_of(proxy).request(what, proxy, *args, kind=ObjectProxy)


class IteratorProxy(ObjectProxy):
    """An iterator of the candidate."""

    __slots__ = ("__left",)

    def __init__(self, owner: ProxyOwner, number: int) -> None:
        super().__init__(owner, number)
        object.__setattr__(self, "_IteratorProxy__left", MAX_ITEMS)

    def __iter__(self) -> Iterator[object]:
        return self

    def __next__(self) -> object:
        if self.__left is None:
            raise StopIteration
        if not self.__left:
            raise CandidateError(f"an iterator of more than {MAX_ITEMS} items")
        object.__setattr__(self, "_IteratorProxy__left", self.__left - 1)
        try:
            return _request(self, "next")
        except StopIteration:
            object.__setattr__(self, "_IteratorProxy__left", None)
            raise


class ResultProxy(ObjectProxy):
    """The result of a class or an operator, or a constant: it answers about itself and is given no data."""

    __slots__ = ()


class InstanceProxy(ResultProxy):
    """An object of the candidate that the test must mean as an object."""

    __slots__ = ()

    def __enter__(self) -> object:
        return _owner_of(self).request("enter", self, kind=InstanceProxy)

    def __exit__(self, *_: object) -> None:
        _request(self, "exit")


class ClassProxy(InstanceProxy):
    """A class of the candidate that the test names."""

    __slots__ = ()


class InstanceIteratorProxy(IteratorProxy, InstanceProxy):
    """An iterator that the test must mean as an object."""

    __slots__ = ()


def proxy_class_for(name: str, is_class: bool) -> type[ObjectProxy]:
    """Return the proxy class for a name: a capitalized one is a class, if the tests use it as one, or a constant."""
    if not name[:1].isupper():
        return ObjectProxy
    return ClassProxy if is_class else ResultProxy


_ALONE = ("abs", "neg", "pos", "invert")
_WITH_ANY = ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "matmul", "and", "or", "xor", "lshift", "rshift")
_WITH_OWN = ("lt", "le", "gt", "ge")


def _question(name: str) -> Callable[..., object]:
    def does(self: ObjectProxy, *args: object) -> object:
        return _request(self, name, *args)

    return does


def _operator(name: str, reflected: bool = False) -> Callable[..., object]:
    called = name if hasattr(operator, name) else f"{name}_"

    def does(self: ObjectProxy, *others: object) -> object:
        if not all(isinstance(each, ObjectProxy) for each in others) and (
            name in _WITH_OWN or not isinstance(self, InstanceProxy)
        ):
            return NotImplemented
        return _owner_of(self).request(called, *((*others, self) if reflected else (self, *others)), kind=ResultProxy)

    return does


def _in_place(name: str) -> Callable[..., object]:
    operate = _operator(name)

    def does(self: ObjectProxy, other: object) -> object:
        found = operate(self, other)
        return self if isinstance(found, ObjectProxy) and proxy_number(found) == proxy_number(self) else found

    return does


for _name in ("len", "bool", "str", "repr", "format", "iter", "reversed", "int", "float", "getitem"):
    setattr(ResultProxy, f"__{_name}__", _question(_name))
for _name in (*_ALONE, *_WITH_ANY, *_WITH_OWN):
    setattr(ResultProxy, f"__{_name}__", _operator(_name))
for _name in _WITH_ANY:
    setattr(ResultProxy, f"__r{_name}__", _operator(_name, reflected=True))
    setattr(ResultProxy, f"__i{_name}__", _in_place(f"i{_name}"))
for _name in ("setitem", "delitem", "contains"):
    setattr(InstanceProxy, f"__{_name}__", _question(_name))

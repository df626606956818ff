"""What the answer has beside data, as the tests see it: things, which :class:`~sandbox.tasks.code_runner.candidate_client.Answer` asks.

- A *thing* (a function, a class, an object of the answer's own class) can be called and asked for attributes.  It has
  none of the standard types' methods and no length, items or order: whoever is asked for a list and sends a thing would
  say at each question what is wanted.  Two of them are equal as the answer says: both are its own.
- A *class* is what a test names with a capital, and calls or asks for an attribute.  What a call of it makes is a
  *result*, and so are constants and what operators make of results (``a + b``): it has a length, items and a text, and
  operators with other things, but hears of no data.  A capital may begin a function's name, too.
- What a test must mean as an object (:mod:`sandbox.tasks.code_runner.object_inference`) is an *instance*: it has its methods and operators with data,
  too; compared with data it is unequal.  What its methods answer and its attributes hold is a thing again: an area is a
  number.
- One object of the answer's can be here as several of these; they are equal, and :meth:`Answer.itself` is one for all.
- An iterator is asked for each item, within a bound, and ends once.
- What ends a loop is an error anywhere else: only asking an iterator for its next item may raise StopIteration.
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
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from sandbox.tasks.code_runner.candidate_client import CandidateClient

MOST_ITEMS = 100_000
"""Of an iterator, in either direction."""
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
"""Attributes of the types that cross."""


class CandidateError(Exception):
    """The candidate gave no answer that can be compared."""


class ObjectProxy:
    """A function, class or object of the answer's own."""

    __slots__ = ("__answer", "__number")
    __answer: CandidateClient

    def __init__(self, answer: CandidateClient, number: int) -> None:
        object.__setattr__(self, "_ObjectProxy__answer", answer)
        object.__setattr__(self, "_ObjectProxy__number", number)

    def __call__(self, *args: object, **kwargs: object) -> object:
        return self.__answer.call(self, args, kwargs)

    def __getattr__(self, name: str) -> Any:
        found: object = None
        if not name.startswith("__") or name in _DUNDERS:
            found = self.__answer.get_attribute(self, name)
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
            isinstance(value, ObjectProxy)
            and self.__answer.request("isinstance", value, self, kind=ObjectProxy) is True
        )

    def __subclasscheck__(self, value: object) -> bool:
        return (
            isinstance(value, ObjectProxy)
            and self.__answer.request("issubclass", value, self, kind=ObjectProxy) is True
        )


_client_of = cast("Callable[[ObjectProxy], CandidateClient]", attrgetter("_ObjectProxy__answer"))
proxy_number = cast("Callable[[ObjectProxy], int]", attrgetter("_ObjectProxy__number"))


def _request(thing: ObjectProxy, what: str, *args: object) -> Any:
    return _client_of(thing).request(what, thing, *args, kind=ObjectProxy)


class IteratorProxy(ObjectProxy):
    """An iterator of the answer's own."""

    __slots__ = ("__left",)

    def __init__(self, answer: CandidateClient, number: int) -> None:
        super().__init__(answer, number)
        object.__setattr__(self, "_IteratorProxy__left", MOST_ITEMS)

    def __iter__(self) -> Iterator[object]:
        return self

    def __next__(self) -> object:
        if self.__left is None:
            raise StopIteration
        if not self.__left:
            raise CandidateError(f"an iterator of more than {MOST_ITEMS} items")
        object.__setattr__(self, "_IteratorProxy__left", self.__left - 1)
        try:
            return _request(self, "next")
        except StopIteration:
            object.__setattr__(self, "_IteratorProxy__left", None)
            raise


class ResultProxy(ObjectProxy):
    """What classes and operators make of the answer's own, and its constants: they answer of themselves, and hear of no
    data."""

    __slots__ = ()


class InstanceProxy(ResultProxy):
    """What the test must mean as an object."""

    __slots__ = ()

    def __enter__(self) -> object:
        return _client_of(self).request("enter", self, kind=InstanceProxy)

    def __exit__(self, *_: object) -> None:
        _request(self, "exit")


class ClassProxy(InstanceProxy):
    """A class that the test names."""

    __slots__ = ()


class InstanceIteratorProxy(IteratorProxy, InstanceProxy):
    """An iterator that the test must mean as an object."""

    __slots__ = ()


def proxy_class_for(name: str, is_class: bool) -> type[ObjectProxy]:
    """A capital begins the name of a class, as which the tests use it, or of a constant."""
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
        return _client_of(self).request(called, *((*others, self) if reflected else (self, *others)), kind=ResultProxy)

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

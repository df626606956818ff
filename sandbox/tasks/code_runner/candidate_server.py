"""The candidate's process: it loads the program and serves the judge's requests, one message at a time.

It runs as user 65534, on any Python from 3.9 and with few of its modules. It sees only what the tests pass: arguments,
and numbers that stand for their functions, which it can call back. Data is copied
(:mod:`sandbox.tasks.code_runner.value_codec`); functions, classes, their objects and iterators cross as numbers.
"""

from __future__ import annotations

import ast
import builtins
import importlib
import operator
import os
import socket
import sys
import threading
import types
from collections.abc import Callable, Iterator
from typing import Any, cast

from sandbox.tasks.code_runner.value_codec import MUTABLE_TYPES, named_tuple, pack, unpack

CANDIDATE_MODULE = "solution"
"""Name of the program as a module, from which test code may import."""
HEAD_BYTES = 8
_NUMBERS = ("numpy", "array")
"""Modules whose arrays and numbers cross as lists and numbers."""
_OF_LEETCODE = ("typing", "string", "operator", "itertools", "heapq", "bisect", "functools", "collections", "math")
_MODULES_OF_LEETCODE = (*_OF_LEETCODE, "copy", "datetime", "random", "re", "sys")


def send(channel: socket.socket, message: list[Any]) -> None:
    data = ascii(message).encode()
    channel.sendall(len(data).to_bytes(HEAD_BYTES, "big") + data)


def receive(read: Callable[[int], bytes], most_bytes: int) -> Any:
    """Receive the next message. ``read`` returns at most the given number of bytes, and none at the end.

    Raises EOFError when the other end is closed, ValueError for an invalid message.
    """
    length = int.from_bytes(_exactly(read, HEAD_BYTES), "big")
    if length > most_bytes:
        raise ValueError(f"a message of {length} bytes")
    return ast.literal_eval(_exactly(read, length).decode())


def _exactly(read: Callable[[int], bytes], count: int) -> bytes:
    data = bytearray()
    while len(data) < count:
        part = read(min(count - len(data), 1 << 20))
        if not part:
            raise EOFError
        data += part
    return bytes(data)


def error_ancestry(kind: type) -> Any:
    """Describe an error class as data: Python's own by its name, another by its name and its bases."""
    if getattr(builtins, kind.__name__, None) is kind:
        return kind.__name__
    return [kind.__name__, [error_ancestry(base) for base in kind.__bases__]]


def _enter(thing: Any) -> object:
    return thing.__enter__()


def _exit(thing: Any) -> object:
    return thing.__exit__(None, None, None)


class CandidateServer:
    """Serves requests on the program's objects, each of which has a number while the process lives."""

    def __init__(self, channel: socket.socket, space: dict[str, Any], broken: BaseException | None) -> None:
        """``broken``: the error with which loading the program ended."""
        self._channel = channel
        self._space = space
        self._broken = broken
        self._callback_lock = threading.RLock()
        """Held while the program calls a function of the tests: its threads do so one at a time."""
        self._objects: list[object] = []
        self._numbers: dict[int, int] = {}
        self._operations: dict[str, Callable[..., object]] = {
            "name": self._name,
            "entry": self._entry,
            "getattr": getattr,
            "setattr": setattr,
            "delattr": delattr,
            "type": type,
            "setrecursionlimit": sys.setrecursionlimit,
            "next": next,
            "isinstance": isinstance,
            "issubclass": issubclass,
            "enter": _enter,
            "exit": _exit,
            **{
                name: getattr(builtins, name)
                for name in ("len", "bool", "str", "repr", "format", "iter", "reversed", "hash", "int", "float")
            },
        }

    def serve(self, until: str = "") -> Any:
        """Serve requests; with ``until``, return the first message that is not a request: a callback's result."""
        while True:
            message = receive(self._channel.recv, sys.maxsize)
            if until and message[0] != "do":
                return message
            send(self._channel, self._handle_request(*message[1:]))

    def _handle_request(self, what: str, packed: list[Any]) -> list[Any]:
        if self._broken is not None:
            return self._describe_error(self._broken)
        try:
            args = [self._unpack(each) for each in packed]
            if what == "call":
                return self._call_function(*args)
            return ["value", self._pack(self._operations.get(what) or getattr(operator, what), *args), {}]
        except BaseException as error:  # noqa: BLE001  the program's own error is the reply
            return self._describe_error(error)

    def _call_function(self, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Any]:
        given = {str(at): each for at, each in enumerate(args)} | kwargs
        before = {key: pack(each, self._other) for key, each in given.items() if isinstance(each, MUTABLE_TYPES)}
        answer = function(*args, **kwargs)
        after = {key: pack(given[key], self._other) for key in before}
        own = isinstance(function, type) and type(answer).__module__ == CANDIDATE_MODULE
        value = self._numbered(answer) if own else pack(answer, self._other)
        return ["value", value, {key: each for key, each in after.items() if each != before[key]}]

    def _pack(self, does: Callable[..., object], *args: Any) -> Any:
        return pack(does(*args), self._other)

    def _describe_error(self, error: BaseException) -> list[Any]:
        try:
            more: list[Any] = [pack(error.args, self._other), str(error), pack(dict(vars(error)), self._other)]
        except Exception:  # noqa: BLE001  a text that cannot be made is the program's own
            more = [["tuple", []], "", ["dict", []]]
        return ["error", error_ancestry(type(error)), *more]

    def _name(self, name: str) -> object:
        if name not in self._space:
            raise NameError(name)
        return self._space[name]

    def _entry(self, name: str) -> object:
        return self._space[name] if name in self._space else getattr(self._space["Solution"](), name)

    def _other(self, value: object) -> Any:
        if type(value).__module__ in _NUMBERS and hasattr(value, "tolist"):
            return pack(cast("Any", value).tolist(), self._other)
        if isinstance(value, type) and issubclass(value, BaseException):
            return ["exception", error_ancestry(value)]
        if isinstance(value, type) and getattr(builtins, value.__name__, None) is value:
            return ["type", value.__name__]
        return self._numbered(value)

    def _numbered(self, value: object) -> Any:
        number = self._numbers.setdefault(id(value), len(self._objects))
        if number == len(self._objects):
            self._objects.append(value)
        return ["iterator" if isinstance(value, Iterator) else "thing", number]

    def _unpack(self, packed: Any) -> Any:
        return unpack(packed, self._given)

    def _given(self, packed: list[Any]) -> object:
        tag, *rest = packed
        if tag == "thing":
            return self._objects[rest[0]]
        if tag == "iterator":
            return iter(self._unpack(rest[0]))
        if tag == "named":
            return named_tuple(rest[0], rest[1], map(self._unpack, rest[2]))
        if tag == "named function":
            return getattr(importlib.import_module(rest[0]), rest[1])
        return self._callback(rest[0])

    def _callback(self, number: int) -> Callable[..., object]:
        def ask(*args: object, **kwargs: object) -> object:
            with self._callback_lock:
                send(self._channel, ["callback", number, pack(args, self._other), pack(kwargs, self._other)])
                kind, value, *text = self.serve("answered")
            if kind == "error":
                raise getattr(builtins, value, Exception)(*text)
            return self._unpack(value)

        return ask


def leetcode_names() -> dict[str, object]:
    """Return the names that LeetCode gives to programs without an import, such as ``List``: Python's come first."""
    modules = {name: importlib.import_module(name) for name in _MODULES_OF_LEETCODE}
    names: dict[str, object] = {}
    for each in _OF_LEETCODE:
        own = vars(modules[each])
        names |= {name: own[name] for name in own.get("__all__", own) if not name.startswith("_")}
    return names | modules | vars(builtins)


def main(program: str, descriptor: int) -> None:
    channel = socket.socket(fileno=descriptor)
    module = types.ModuleType(CANDIDATE_MODULE)
    module.__file__ = program
    sys.modules[CANDIDATE_MODULE] = module
    broken = None
    try:
        with open(program, encoding="utf-8") as source:  # noqa: PTH123  few modules are loaded here
            text = source.read()
        code = compile(text, program, "exec")
        if "class Solution" in text:
            module.__dict__["__builtins__"] = leetcode_names()
        exec(code, module.__dict__)  # noqa: S102  in a process of its own
    except BaseException as error:  # noqa: BLE001  every request is answered with it
        broken = error
    try:
        CandidateServer(channel, module.__dict__, broken).serve()
    finally:
        os._exit(0)

"""The answer as the tests see it: its functions and objects, which live in a process of their own (:mod:`code_side`).

Nothing of the answer's runs here, and nothing is made of what it sends but data and the errors that it raised.  So it
cannot say that it is equal: what a test compares with its own values is data, or unequal.

- A *thing* (a function, a class, an object of the answer's own class) can be called and asked for attributes.  It has
  none of the names of the standard types' methods and no length, items or order: whoever is asked for a list and sends
  a thing would say at each question what is wanted.  Two of them compare as the answer says: both are its own.
- An *instance* came of a name that begins with a capital, as classes do: a test that makes it means that class, so it
  has its methods and operators; compared with data it is unequal.
- An iterator is asked for each item, within a bound, and ends once.
"""

from __future__ import annotations

import builtins
import itertools
import operator
import os
import signal
import socket
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from datetime import datetime
from operator import attrgetter
from pathlib import Path
from typing import Any, cast

from sandbox.tasks.code_side import ancestry, receive, send
from sandbox.tasks.code_values import CHANGEABLE, Uncrossable, pack, put, unpack

CASE_S = 10.0
ANSWER_BYTES = 16 << 20
NOBODY = 65534
AS_NOBODY: Mapping[str, Any] = {"user": NOBODY, "group": NOBODY, "extra_groups": []}
_ITEMS = 100_000
"""Of an iterator, in either direction."""
_STANDARD_TYPES = (str, bytes, bytearray, int, float, complex, list, dict, set, tuple, range, deque, datetime)
_STANDARD = frozenset(name for kind in _STANDARD_TYPES for name in dir(kind) if not name.startswith("__")) | {
    *("is_finite", "is_infinite", "is_nan", "is_normal", "is_signed", "is_zero", "quantize", "compare", "same_quantum"),
    "limit_denominator",
}
_NO_ANSWER = (OSError, EOFError, ValueError, SyntaxError, TypeError, LookupError, RecursionError, MemoryError)
_LENGTHS = {"value": 3, "error": 5, "callback": 4}
_DUNDERS = frozenset(("__name__", "__doc__", "__dict__", "__wrapped__"))
_START = (
    "import sys; sys.path.insert(0, sys.argv[1]); from sandbox.tasks.code_side import main; sys.path.pop(0);"
    "main(sys.argv[2], int(sys.argv[3]))"
)


class CandidateError(Exception):
    """The candidate gave no answer that can be compared."""


class Candidate:
    """A copy of the program that ``nobody`` may read, in a folder of its own."""

    def __init__(self, program: Path) -> None:
        self.folder = Path("/tmp") / os.urandom(8).hex()  # noqa: S108  an unguessable name: mkdir fails if it exists
        self.folder.mkdir()
        self.folder.chmod(0o755)
        self.program = self.folder / "solution.py"
        self._copy(program, self.program)

    def _copy(self, source: Path, target: Path) -> None:
        target.write_bytes(source.read_bytes())
        target.chmod(0o644)

    def prints(self, text: str) -> str:
        """What the program prints for ``text`` on its standard input."""
        done = subprocess.run(
            [sys.executable, str(self.program)],
            input=text.encode(),
            stdout=subprocess.PIPE,
            timeout=CASE_S,
            check=False,
            **self._surroundings(),
        )
        return done.stdout.decode(errors="replace")

    def answer(self) -> Answer:
        """The program, loaded, in a process that :meth:`Answer.close` ends."""
        library = self.folder / os.urandom(8).hex()
        package = library / "sandbox/tasks"
        package.mkdir(parents=True)
        for folder in (library, library / "sandbox", package):
            folder.chmod(0o755)
        for name in ("code_side.py", "code_values.py"):
            self._copy(Path(__file__).with_name(name), package / name)
        ours, theirs = socket.socketpair()
        with theirs:
            process = subprocess.Popen(
                [sys.executable, "-c", _START, str(library), str(self.program), str(theirs.fileno())],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                **self._surroundings(),
            )
        return Answer(ours, process)

    def _surroundings(self) -> dict[str, Any]:
        return {
            "cwd": self.folder,
            "env": {"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": str(self.folder), "LANG": "C.UTF-8"},
            "stderr": subprocess.DEVNULL,
            "start_new_session": True,
            **AS_NOBODY,
        }


class Answer:
    """The judging end of the channel to a loaded program."""

    def __init__(self, channel: socket.socket, process: subprocess.Popen[Any]) -> None:
        self._channel, self._process = channel, process
        self._functions: list[Callable[..., object]] = []
        self._errors: dict[str, type[Exception]] = {}
        self._things: dict[int, Thing] = {}
        self._until_s = 0.0
        self._depth = 0
        self._looked_at: list[object] = []
        self.asked = 0
        """How often a test asked it for something."""

    def close(self) -> None:
        """End the program, and what it started in its session."""
        self._channel.close()
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()

    def named(self, name: str) -> object:
        """What the program has under this name.  Raises NameError where it has none."""
        found = self._ask("name", name, kind=Instance if name[:1].isupper() else Thing)
        self.asked += not isinstance(found, Thing)
        return found

    def entry(self, name: str) -> Callable[..., object]:
        """The function of this name, or the method of ``Solution``."""
        return cast("Callable[..., object]", self._ask("entry", name))

    def looked_at(self, value: object) -> object:
        """Note that a test compares this with its own values after a call, and so wants it changed."""
        self._looked_at.append(value)
        return value

    def ask(self, what: str, *args: object, kind: type[Thing]) -> Any:
        self.asked += 1
        return self._ask(what, *args, kind=kind)

    def call(self, thing: Thing, args: tuple[object, ...], kwargs: dict[str, object]) -> object:
        """What it answers.  Arguments that it changed are changed here where it answers nothing else, or where the
        test looks at them: else a test that computes what is right from its argument would be told what that is."""
        self.asked += 1
        value, changes = self._exchange("call", [thing, args, kwargs], type(thing))
        given = {str(at): each for at, each in enumerate(args)} | kwargs
        for key, packed in changes.items():
            old = given.get(key)
            if isinstance(old, CHANGEABLE) and (value is None or any(each is old for each in self._looked_at)):
                self._put(old, packed, type(thing))
        return value

    def _put(self, old: object, packed: Any, kind: type[Thing]) -> None:
        new = self._unpack(packed, kind)
        if not isinstance(new, type(old)):
            raise CandidateError("an argument became another type")
        put(old, new)

    def _ask(self, what: str, *args: object, kind: type[Thing] | None = None) -> Any:
        return self._exchange(what, list(args), kind or Thing)[0]

    def _exchange(self, what: str, args: list[object], kind: type[Thing]) -> tuple[Any, dict[str, Any]]:
        packed = [self._pack(each) for each in args]
        if not self._depth:
            self._until_s = time.monotonic() + CASE_S
        self._depth += 1
        try:
            said = self._said(["do", what, packed])
        except _NO_ANSWER as error:
            self._channel.close()
            raise CandidateError(f"{what}: {type(error).__name__}: {error}") from error
        finally:
            self._depth -= 1
        if said[0] == "error":
            raise self._raised(said)
        return self._unpack(said[1], kind), said[2]

    def _said(self, message: list[Any]) -> list[Any]:
        """The answer to ``message``; calls of the tests' functions that come before it are answered."""
        while True:
            self._channel.settimeout(self._left_s())
            send(self._channel, message)
            said = receive(self._read, ANSWER_BYTES)
            if _LENGTHS.get(str(said[0])) != len(said):
                raise ValueError("no answer")
            if said[0] != "callback":
                return said
            message = self._called_back(*said[1:])

    def _read(self, most_bytes: int) -> bytes:
        self._channel.settimeout(self._left_s())
        return self._channel.recv(most_bytes)

    def _left_s(self) -> float:
        left_s = self._until_s - time.monotonic()
        if left_s <= 0:
            raise TimeoutError
        return left_s

    def _called_back(self, number: int, args: Any, kwargs: Any) -> list[Any]:
        given, named = self._unpack(args, Thing), self._unpack(kwargs, Thing)
        try:
            return ["value", self._pack(self._functions[number](*given, **named))]
        except Exception as error:  # noqa: BLE001  the test's function raises it for the answer to see
            known = (each.__name__ for each in type(error).__mro__ if ancestry(each) == each.__name__)
            return ["error", next(known), str(error)]

    def _pack(self, value: object) -> Any:
        return pack(value, self._other)

    def _other(self, value: object) -> Any:
        if isinstance(value, Thing):
            return ["thing", _number_of(value)]
        if isinstance(value, Iterator):
            items = list(itertools.islice(cast("Iterator[object]", value), _ITEMS + 1))
            if len(items) > _ITEMS:
                raise Uncrossable(f"an iterator of more than {_ITEMS} items")
            return ["iterator", self._pack(items)]
        if not callable(value):
            raise Uncrossable(f"{type(value).__name__} does not cross to the answer")
        module, name = getattr(value, "__module__", None), getattr(value, "__qualname__", "")
        if module and getattr(sys.modules.get(module), name, None) is value:
            return ["named function", module, name]
        self._functions.append(value)
        return ["function", len(self._functions) - 1]

    def _unpack(self, packed: Any, kind: type[Thing]) -> Any:
        def other(tagged: list[Any]) -> object:
            tag, said = tagged
            if tag == "exception":
                return self._error_class(said)
            if tag == "type" and isinstance(found := getattr(builtins, str(said), None), type):
                return found
            if tag in ("thing", "iterator") and isinstance(said, int):
                return self._thing(said, Items if tag == "iterator" else kind)
            raise ValueError("no such value")

        try:
            return unpack(packed, other)
        except Exception as error:
            raise CandidateError(f"{type(error).__name__}: {error}") from error

    def _thing(self, number: int, kind: type[Thing]) -> Thing:
        """One for each number; an instance from when it came of a class."""
        known = self._things.setdefault(number, kind(self, number))
        if kind is Instance and type(known) is Thing:
            object.__setattr__(known, "__class__", Instance)
        return known

    def _raised(self, said: list[Any]) -> Exception:
        _, names, args, text, more = said
        kind = self._error_class(names)
        try:
            raised = kind(*self._unpack(args, Thing))
            for name, value in self._unpack(more, Thing).items():
                if not str(name).startswith("__"):
                    setattr(raised, name, value)
        except Exception as error:
            raise CandidateError(f"{names}: {text}") from error
        if kind.__module__ != "builtins":
            raised.__dict__["__text__"] = str(text)
        return raised

    def _error_class(self, names: Any) -> type[Exception]:
        """An error that is Python's own, or one with the same name and bases as the answer's."""
        if isinstance(names, str):
            found: object = getattr(builtins, names, None)
            if isinstance(found, type) and issubclass(found, Exception):
                return found
            raise CandidateError(names)
        key = repr(names)
        if key not in self._errors:
            bases = [object if base == "object" else self._error_class(base) for base in names[1]]
            self._errors[key] = self._new_error(str(names[0]), tuple(bases))
        return self._errors[key]

    def _new_error(self, name: str, bases: tuple[type, ...]) -> type[Exception]:
        try:
            made = type(name, bases, {"__module__": "solution", "__str__": _text})
        except TypeError as error:
            raise CandidateError(name) from error
        if not issubclass(made, Exception):
            raise CandidateError(name)
        return made


def _text(error: Exception) -> str:
    return str(error.__dict__.get("__text__", ""))


class Thing:
    """A function, class or object of the answer's own."""

    __slots__ = ("__answer", "__number")
    __answer: Answer

    def __init__(self, answer: Answer, number: int) -> None:
        object.__setattr__(self, "_Thing__answer", answer)
        object.__setattr__(self, "_Thing__number", number)

    def __call__(self, *args: object, **kwargs: object) -> object:
        return self.__answer.call(self, args, kwargs)

    def __getattr__(self, name: str) -> Any:
        if (name.startswith("__") and name not in _DUNDERS) or (type(self) is Thing and name in _STANDARD):
            raise AttributeError(f"the answer's own object has no {name} here")
        return _asked(self, "getattr", name)

    def __setattr__(self, name: str, value: object) -> None:
        _asked(self, "setattr", name, value)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Thing):
            return NotImplemented
        return self is other or bool(_asked(self, "eq", other) is True)

    def __hash__(self) -> int:
        return int(_asked(self, "hash"))

    def __instancecheck__(self, value: object) -> bool:
        return isinstance(value, Thing) and self.__answer.ask("isinstance", value, self, kind=Thing) is True

    def __subclasscheck__(self, value: object) -> bool:
        return isinstance(value, Thing) and self.__answer.ask("issubclass", value, self, kind=Thing) is True


_answer_of = cast("Callable[[Thing], Answer]", attrgetter("_Thing__answer"))
_number_of = cast("Callable[[Thing], int]", attrgetter("_Thing__number"))


def _asked(thing: Thing, what: str, *args: object) -> Any:
    return _answer_of(thing).ask(what, thing, *args, kind=type(thing))


class Items(Thing):
    """An iterator of the answer's own."""

    __slots__ = ("__left",)

    def __init__(self, answer: Answer, number: int) -> None:
        super().__init__(answer, number)
        object.__setattr__(self, "_Items__left", _ITEMS)

    def __iter__(self) -> Iterator[object]:
        return self

    def __next__(self) -> object:
        if self.__left is None:
            raise StopIteration
        if not self.__left:
            raise CandidateError(f"an iterator of more than {_ITEMS} items")
        object.__setattr__(self, "_Items__left", self.__left - 1)
        try:
            return _asked(self, "next")
        except StopIteration:
            object.__setattr__(self, "_Items__left", None)
            raise


class Instance(Thing):
    """A class that the test names, what it makes, and what that has."""

    __slots__ = ()

    def __enter__(self) -> object:
        return _asked(self, "enter")

    def __exit__(self, *_: object) -> None:
        _asked(self, "exit")


_ALONE = ("len", "bool", "str", "repr", "iter", "int", "float", "abs", "neg", "pos", "invert")
_WITH_ANY = ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "matmul", "and", "or", "xor", "lshift", "rshift")
_WITH_ITEMS = ("getitem", "setitem", "delitem", "contains")
_WITH_OWN = ("lt", "le", "gt", "ge")


def _operator(name: str) -> Callable[..., object]:
    def does(self: Thing, *args: object) -> object:
        if name in _WITH_OWN and not isinstance(args[0], Thing):
            return NotImplemented
        return _asked(self, name if hasattr(operator, name) or name in _ALONE else f"{name}_", *args)

    return does


def _reflected(name: str) -> Callable[..., object]:
    def does(self: Thing, other: object) -> object:
        return _answer_of(self).ask(name if hasattr(operator, name) else f"{name}_", other, self, kind=type(self))

    return does


for _name in (*_ALONE, *_WITH_ANY, *_WITH_ITEMS, *_WITH_OWN):
    setattr(Instance, f"__{_name}__", _operator(_name))
for _name in _WITH_ANY:
    setattr(Instance, f"__r{_name}__", _reflected(_name))

"""The answer as the tests see it: its functions and objects, which live in a process of their own (:mod:`sandbox.tasks.code_runner.candidate_server`).

Nothing of the answer's runs here, and nothing is made of what it sends but data and the errors that it raised.  So it
cannot say that it is equal: what a test compares with its own values is data, or unequal.  What it has beside data are
things (:mod:`sandbox.tasks.code_runner.proxies`).
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
import time
from collections.abc import Callable, Collection, Generator, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, cast

from sandbox.tasks.code_runner.candidate_server import CANDIDATE_MODULE, error_ancestry, receive, send
from sandbox.tasks.code_runner.proxies import (
    MOST_ITEMS,
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

CASE_TIMEOUT_S = 10.0
MOST_REPLY_BYTES = 16 << 20
AS_NOBODY: Mapping[str, Any] = {"user": 65534, "group": 65534, "extra_groups": []}
_NO_ANSWER = (OSError, EOFError, ValueError, SyntaxError, TypeError, LookupError, RecursionError, MemoryError)
_LENGTHS = {"value": 3, "error": 5, "callback": 4}


_START = (
    "import sys; sys.path.insert(0, sys.argv[1]); from sandbox.tasks.code_runner.candidate_server import main; sys.path.pop(0);"
    "main(sys.argv[2], int(sys.argv[3]))"
)


class CandidateProgram:
    """A copy of the program that ``nobody`` may read, in a folder of its own."""

    def __init__(self, program: Path) -> None:
        self.folder = Path("/tmp") / os.urandom(8).hex()  # noqa: S108  an unguessable name: mkdir fails if it exists
        self.folder.mkdir()
        self.folder.chmod(0o755)
        self.program = self.folder / "solution.py"
        self._copy(program, self.program)
        self.work = self.folder / "work"
        self.work.mkdir()
        os.chown(self.work, AS_NOBODY["user"], AS_NOBODY["group"])

    def _copy(self, source: Path, target: Path) -> None:
        target.write_bytes(source.read_bytes())
        target.chmod(0o644)

    @contextmanager
    def as_candidate_user(self) -> Generator[None]:
        """Be nobody, in its working directory: files are shared with it, and a link that it made leads nowhere else."""
        user, group, folder = os.geteuid(), os.getegid(), os.open(".", os.O_RDONLY)
        os.chdir(self.work)
        os.setegid(AS_NOBODY["group"])
        os.seteuid(AS_NOBODY["user"])
        try:
            yield
        finally:
            os.seteuid(user)
            os.setegid(group)
            os.fchdir(folder)
            os.close(folder)

    def run_with_input(self, text: str) -> str:
        """What the program prints for ``text`` on its standard input."""
        done = subprocess.run(
            [sys.executable, str(self.program)],
            input=text.encode(),
            stdout=subprocess.PIPE,
            timeout=CASE_TIMEOUT_S,
            check=False,
            **self._surroundings(),
        )
        return done.stdout.decode(errors="replace")

    def start_server(self) -> CandidateClient:
        """The program, loaded, in a process that :meth:`Answer.close` ends."""
        library = self.folder / os.urandom(8).hex()
        package = library / "sandbox/tasks/code_runner"
        package.mkdir(parents=True)
        for folder in (library, library / "sandbox", package.parent, package):
            folder.chmod(0o755)
        for name in ("candidate_server.py", "value_codec.py"):
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
        return CandidateClient(ours, process)

    def _surroundings(self) -> dict[str, Any]:
        return {
            "cwd": self.work,
            "env": {"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": str(self.work), "LANG": "C.UTF-8"},
            "stderr": subprocess.DEVNULL,
            "start_new_session": True,
            **AS_NOBODY,
        }


class CandidateClient:
    """The judging end of the channel to a loaded program."""

    def __init__(self, channel: socket.socket, process: subprocess.Popen[Any]) -> None:
        self._channel, self._process = channel, process
        self._functions: list[Callable[..., object]] = []
        self._errors: dict[str, type[Exception]] = {}
        self._proxies: dict[tuple[int, type[ObjectProxy]], ObjectProxy] = {}
        self._one_asks = threading.RLock()
        """A test may have threads; what it is called back for is asked by the same one."""
        self._until_s = 0.0
        self._depth = 0
        self._recursion_limit = sys.getrecursionlimit()
        self._inspected: list[object] = []
        self.types: Collection[str] = ()
        """Names of the tests that may be types of Python's: these cross as what they are, others can only be called.
        (``set.union(wanted)`` is what is wanted.)"""
        self.classes: Collection[str] = ()
        """Names with a capital that the tests use as a class."""
        self.request_count = 0
        """How often a test asked it for something."""

    def close(self) -> None:
        """End the program, and what it started in its session."""
        self._channel.close()
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()

    def get_name(self, name: str, is_class: bool) -> object:
        """What the program has under this name, which the tests use as a class or do not.  Raises NameError where
        it has none."""
        found = self._request("name", name, kind=proxy_class_for(name, is_class))
        self.request_count += not isinstance(found, ObjectProxy)
        return found

    def get_attribute(self, thing: ObjectProxy, name: str) -> object:
        kind = proxy_class_for(name, name in self.classes) if isinstance(thing, ClassProxy) else ObjectProxy
        return self.request("getattr", thing, name, kind=kind)

    def get_entry_point(self, name: str) -> Callable[..., object]:
        """The function of this name, or the method of ``Solution``."""
        return cast("Callable[..., object]", self._request("entry", name))

    def note_inspected(self, value: object) -> object:
        """Note that a test compares this with its own values after a call, and so wants it changed."""
        self._inspected.append(value)
        return value

    def as_instance(self, value: object) -> object:
        """What a test must mean as an object: none of a standard type has what it asks of it."""
        if not isinstance(value, ObjectProxy) or isinstance(value, InstanceProxy):
            return value
        return self._proxy(
            proxy_number(value), InstanceIteratorProxy if isinstance(value, IteratorProxy) else InstanceProxy
        )

    def as_identity(self, value: object) -> object:
        """The same for all that stand for one object of the answer's."""
        return self._proxy(proxy_number(value), ObjectProxy) if isinstance(value, ObjectProxy) else value

    def get_type(self, value: object) -> object:
        """A class of the answer's can be compared and has a name; a test does not call this one."""
        return self.request("type", value, kind=ObjectProxy) if isinstance(value, ObjectProxy) else type(value)

    def request(self, what: str, *args: object, kind: type[ObjectProxy]) -> Any:
        self.request_count += 1
        return self._request(what, *args, kind=kind)

    def call(self, thing: ObjectProxy, args: tuple[object, ...], kwargs: dict[str, object]) -> object:
        """What it answers.  Arguments that it changed are changed here where it answers nothing else, or where the
        test looks at them: else a test that computes what is right from its argument would be told what that is."""
        self.request_count += 1
        value, changes = self._exchange_locked(
            "call", [thing, args, kwargs], ResultProxy if type(thing) is ClassProxy else ObjectProxy
        )
        given = {str(at): each for at, each in enumerate(args)} | kwargs
        for key, packed in changes.items():
            old = given.get(key)
            if isinstance(old, MUTABLE_TYPES) and (value is None or any(each is old for each in self._inspected)):
                self._put(old, packed)
        return value

    def _put(self, old: object, packed: Any) -> None:
        new = self._unpack(packed, ObjectProxy)
        if not isinstance(new, type(old)):
            raise CandidateError("an argument became another type")
        update_in_place(old, new)

    def _request(self, what: str, *args: object, kind: type[ObjectProxy] = ObjectProxy) -> Any:
        return self._exchange_locked(what, list(args), kind)[0]

    def _exchange_locked(self, what: str, args: list[object], kind: type[ObjectProxy]) -> tuple[Any, dict[str, Any]]:
        with self._one_asks:
            if self._recursion_limit != (limit := sys.getrecursionlimit()):
                self._recursion_limit = limit
                self._exchange_message("setrecursionlimit", [limit], ObjectProxy)
            return self._exchange_message(what, args, kind)

    def _exchange_message(self, what: str, args: list[object], kind: type[ObjectProxy]) -> tuple[Any, dict[str, Any]]:
        packed = [self._pack(each) for each in args]
        if not self._depth:
            self._until_s = time.monotonic() + CASE_TIMEOUT_S
        self._depth += 1
        try:
            said = self._receive_reply(["do", what, packed])
        except _NO_ANSWER as error:
            self._channel.close()
            raise CandidateError(f"{what}: {type(error).__name__}: {error}") from error
        finally:
            self._depth -= 1
        if said[0] == "error":
            raise self._rebuild_error(said, ends=what == "next")
        return self._unpack(said[1], kind), said[2]

    def _receive_reply(self, message: list[Any]) -> list[Any]:
        """The answer to ``message``; calls of the tests' functions that come before it are answered."""
        while True:
            self._channel.settimeout(self._left_s())
            send(self._channel, message)
            said = receive(self._read, MOST_REPLY_BYTES)
            if _LENGTHS.get(str(said[0])) != len(said):
                raise ValueError("no answer")
            if said[0] != "callback":
                return said
            message = self._run_callback(*said[1:])

    def _read(self, most_bytes: int) -> bytes:
        self._channel.settimeout(self._left_s())
        return self._channel.recv(most_bytes)

    def _left_s(self) -> float:
        left_s = self._until_s - time.monotonic()
        if left_s <= 0:
            raise TimeoutError
        return left_s

    def _run_callback(self, number: int, args: Any, kwargs: Any) -> list[Any]:
        given, named = self._unpack(args, ObjectProxy), self._unpack(kwargs, ObjectProxy)
        try:
            return ["value", self._pack(self._functions[number](*given, **named))]
        except Exception as error:  # noqa: BLE001  the test's function raises it for the answer to see
            known = (each.__name__ for each in type(error).__mro__ if error_ancestry(each) == each.__name__)
            return ["error", next(known), str(error)]

    def _pack(self, value: object) -> Any:
        return pack(value, self._other)

    def _other(self, value: object) -> Any:
        if isinstance(value, ObjectProxy):
            return ["thing", proxy_number(value)]
        if isinstance(value, Iterator):
            items = list(itertools.islice(cast("Iterator[object]", value), MOST_ITEMS + 1))
            if len(items) > MOST_ITEMS:
                raise UncrossableValueError(f"an iterator of more than {MOST_ITEMS} items")
            return ["iterator", self._pack(items)]
        if not callable(value):
            raise UncrossableValueError(f"{type(value).__name__} does not cross to the answer")
        module, name = getattr(value, "__module__", None), getattr(value, "__qualname__", "")
        if module and getattr(sys.modules.get(module), name, None) is value:
            return ["named function", module, name]
        self._functions.append(value)
        return ["function", len(self._functions) - 1]

    def _unpack(self, packed: Any, kind: type[ObjectProxy]) -> Any:
        """What crossed; where that is a thing, of this kind."""
        whole = kind if isinstance(packed, list) and packed[:1] in (["thing"], ["iterator"]) else ObjectProxy

        def other(tagged: list[Any]) -> object:
            tag, said, *rest = tagged
            if tag == "named":
                return _named_tuple(said, rest[0], [self._unpack(each, ObjectProxy) for each in rest[1]])
            if tag == "exception":
                return self._error_class(said)
            if tag == "type" and isinstance(found := getattr(builtins, str(said), None), type):
                return found if said in self.types else _maker(found)
            if tag == "thing" and isinstance(said, int):
                return self._proxy(said, whole)
            if tag == "iterator" and isinstance(said, int):
                return self._proxy(said, InstanceIteratorProxy if whole is InstanceProxy else IteratorProxy)
            raise ValueError("no such value")

        try:
            return unpack(packed, other)
        except Exception as error:
            raise CandidateError(f"{type(error).__name__}: {error}") from error

    def _proxy(self, number: int, kind: type[ObjectProxy]) -> ObjectProxy:
        """One for each number and kind."""
        return self._proxies.setdefault((number, kind), kind(self, number))

    def _rebuild_error(self, said: list[Any], ends: bool) -> Exception:
        """The answer's error.  What would end a loop is another where that was not asked."""
        _, names, args, text, more = said
        kind = self._error_class(names)
        if issubclass(kind, (StopIteration, StopAsyncIteration)) and not ends:
            return RuntimeError(f"the answer raised {kind.__name__}")
        try:
            raised = kind(*self._unpack(args, ObjectProxy))
            for name, value in self._unpack(more, ObjectProxy).items():
                if not (str(name).startswith("__") or hasattr(kind, name)):
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
            made = type(name, bases, {"__module__": CANDIDATE_MODULE, "__str__": _text})
        except TypeError as error:
            raise CandidateError(name) from error
        if not issubclass(made, Exception):
            raise CandidateError(name)
        return made


def _text(error: Exception) -> str:
    return str(error.__dict__.get("__text__", ""))


def _named_tuple(name: str, fields: list[str], values: list[object]) -> tuple[object, ...]:
    """A plain one where a field would hide what a standard type has."""
    fields = [str(each) for each in fields]
    return tuple(values) if STANDARD_ATTRIBUTES.intersection(fields) else named_tuple(name, fields, values)


def _maker(kind: type) -> Callable[..., object]:
    """A type that can be called and has no methods."""

    def make(*args: object, **kwargs: object) -> object:
        return kind(*args, **kwargs)

    make.__name__ = kind.__name__
    return make

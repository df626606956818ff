"""Rebuilds errors that the candidate raised in the judge's process, from their names and arguments.

Runs in the sandbox, on any Python from 3.9.
"""

from __future__ import annotations

import builtins
from collections.abc import Callable
from typing import Any

from sandbox.tasks.code_runner.candidate_server import CANDIDATE_MODULE
from sandbox.tasks.code_runner.proxies import CandidateError


class CandidateErrors:
    """The error classes of one candidate, each created once."""

    def __init__(self, unpack: Callable[[Any], Any]) -> None:
        self._unpack = unpack
        self._classes: dict[str, type[Exception]] = {}

    def rebuild(self, reply: list[Any], *, may_end_iteration: bool) -> Exception:
        """Return the error of an ``error`` reply.

        StopIteration becomes a RuntimeError unless ``may_end_iteration``: it would silently end the test's own loop.
        Raises CandidateError if the reply describes no error.
        """
        _, ancestry, args, text, attributes = reply
        kind = self.error_class(ancestry)
        if issubclass(kind, (StopIteration, StopAsyncIteration)) and not may_end_iteration:
            return RuntimeError(f"the answer raised {kind.__name__}")
        try:
            raised = kind(*self._unpack(args))
            for name, value in self._unpack(attributes).items():
                if not (str(name).startswith("__") or hasattr(kind, name)):
                    setattr(raised, name, value)
        except Exception as error:
            raise CandidateError(f"{ancestry}: {text}") from error
        if kind.__module__ != "builtins":
            raised.__dict__["__text__"] = str(text)
        return raised

    def error_class(self, ancestry: Any) -> type[Exception]:
        """Return Python's own error of that name, or a class with the candidate's name and bases."""
        if isinstance(ancestry, str):
            found: object = getattr(builtins, ancestry, None)
            if isinstance(found, type) and issubclass(found, Exception):
                return found
            raise CandidateError(ancestry)
        key = repr(ancestry)
        if key not in self._classes:
            bases = [object if base == "object" else self.error_class(base) for base in ancestry[1]]
            self._classes[key] = _new_class(str(ancestry[0]), tuple(bases))
        return self._classes[key]


def _new_class(name: str, bases: tuple[type, ...]) -> type[Exception]:
    try:
        made = type(name, bases, {"__module__": CANDIDATE_MODULE, "__str__": _error_text})
    except TypeError as error:
        raise CandidateError(name) from error
    if not issubclass(made, Exception):
        raise CandidateError(name)
    return made


def _error_text(error: Exception) -> str:
    return str(error.__dict__.get("__text__", ""))

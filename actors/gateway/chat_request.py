"""A harness's request, independent of the API, and the error of a refusal."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import takewhile
from typing import ClassVar

import msgspec

from actors.tokens.chat_messages import ChatMessage
from protocol.errors import LongshoreError

_TEXT = "input"
"""The argument of a function that stands for a tool that takes a text."""


class GatewayRequestError(LongshoreError):
    """The request cannot be served as it is; sending it again gives the same answer.

    ``parameter`` is the parameter at fault, if any; ``code`` is OpenAI's code of the cause.
    """

    def __init__(
        self, message: str, *, status: int = 400, parameter: str | None = None, code: str | None = None
    ) -> None:
        super().__init__(message)
        self.status, self.parameter, self.code = status, parameter, code


class UnseenPart(msgspec.Struct):
    """A part of a message that the policy cannot see, because it reads only text."""

    what: ClassVar[str]
    """The part in words, with its article."""

    @property
    def text(self) -> str:
        """Return the text that the policy reads in place of a part that comes up in the course of a session."""
        return f"[{self.what.capitalize()}, which is not shown.]"


def refuse_opening_parts(contents: Iterable[Iterable[object] | None], parameter: str = "messages") -> None:
    """Raise :class:`GatewayRequestError` if the task has a part that the policy cannot see.  ``contents`` are those of
    the messages in order, None for what the assistant says."""
    opening = takewhile(lambda content: content is not None, contents)
    if unseen := next((part for content in opening for part in content or () if isinstance(part, UnseenPart)), None):
        raise GatewayRequestError(
            f"the first messages contain {unseen.what}, and the policy reads only text: describe it, or leave it out",
            parameter=parameter,
        )


def describe_json_error(text: bytes | str, error: Exception) -> str:
    """Return why JSON cannot be decoded; ``error`` is msgspec's, which takes half of a character for an end."""
    try:
        json.dumps(json.loads(text), ensure_ascii=False).encode()
    except UnicodeEncodeError as half:
        return f"a text has the lone surrogate {half.object[half.start]!a}, half of a character: leave it out"
    except (ValueError, RecursionError):
        pass
    return str(error)


@dataclass(frozen=True, slots=True)
class ChatTool:
    """A function that the harness offers to the model; ``parameters`` is a JSON schema."""

    name: str
    description: str
    parameters: dict[str, object]
    namespace: str = ""
    """The harness's group of tools; the name that the model sees begins with it and a dot."""
    takes_text: bool = False
    """If true, the harness knows a tool that takes a text; the model sees a function with one argument."""

    @classmethod
    def taking_text(cls, name: str, description: str) -> ChatTool:
        """Return the function of a tool that takes a text."""
        properties = {_TEXT: {"type": "string"}}
        parameters: dict[str, object] = {"type": "object", "properties": properties, "required": [_TEXT]}
        return cls(name, description, parameters, takes_text=True)

    @staticmethod
    def text_arguments(text: str) -> dict[str, object]:
        """Return the arguments of a call with ``text``, which :meth:`given_text` returns."""
        return {_TEXT: text}

    @staticmethod
    def given_text(arguments: Mapping[str, object]) -> str:
        """Return the text of a call; all arguments as JSON if the model gave others."""
        given = arguments.get(_TEXT)
        return given if isinstance(given, str) and len(arguments) == 1 else msgspec.json.encode(arguments).decode()

    @property
    def schema(self) -> dict[str, object]:
        """Schema in the form that chat templates expect."""
        function = {"name": self.name, "description": self.description, "parameters": self.parameters}
        return {"type": "function", "function": function}


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatRequest:
    """Request for one reply to ``messages``, the last of which is not the assistant's."""

    messages: list[ChatMessage]
    tools: tuple[ChatTool, ...] = ()
    may_call: bool = True
    """If false, the tools are in the prompt, but a call is treated as text."""
    one_call: bool = False
    """If true, the reply ends with its first call if it has several."""
    max_tokens: int | None = None
    """Maximum number of tokens to sample; None for the session's limit."""
    temperature: float | None = None
    """Sampling temperature; None for the session's."""
    stop: tuple[str, ...] = ()
    """Texts at which the reply ends; the first one that occurs is cut off."""

    @property
    def prompt_bytes(self) -> int:
        """Number of bytes of the messages and tools as JSON: with names, arguments, thoughts and schemas."""
        return len(msgspec.json.encode((self.messages, self.tools)))

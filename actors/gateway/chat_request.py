"""What a harness asks, whichever API it speaks, and why it may be refused."""

from __future__ import annotations

from dataclasses import dataclass

from actors.tokens.chat_format import ChatMessage
from protocol.errors import LongshoreError


class GatewayRequestError(LongshoreError):
    """The request cannot be served as it is; a client that sends it again gets the same answer.

    ``parameter`` is what is at fault, where it is one; ``code`` is OpenAI's word for the cause.
    """

    def __init__(
        self, message: str, *, status: int = 400, parameter: str | None = None, code: str | None = None
    ) -> None:
        super().__init__(message)
        self.status, self.parameter, self.code = status, parameter, code


@dataclass(frozen=True, slots=True)
class ChatTool:
    """A function that the harness offers to the model; ``parameters`` is a JSON schema."""

    name: str
    description: str
    parameters: dict[str, object]

    @property
    def schema(self) -> dict[str, object]:
        """As chat templates expect it."""
        function = {"name": self.name, "description": self.description, "parameters": self.parameters}
        return {"type": "function", "function": function}


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatRequest:
    """One reply to ``messages``, the last of which is not the assistant's."""

    messages: list[ChatMessage]
    tools: tuple[ChatTool, ...] = ()
    may_call: bool = True
    """False: the tools stand in the prompt, and a call is text like any other."""
    max_tokens: int | None = None
    """To sample at most; None: as many as the session allows."""
    temperature: float | None = None
    """None: the session's."""
    stop: tuple[str, ...] = ()
    """Texts at which the reply ends; the first to come is cut off from what is told."""
    body_bytes: int = 0
    """Bytes of the request."""

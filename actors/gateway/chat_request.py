"""A harness's request, independent of the API, and the error of a refusal."""

from __future__ import annotations

from dataclasses import dataclass

from actors.tokens.chat_format import ChatMessage
from protocol.errors import LongshoreError


class GatewayRequestError(LongshoreError):
    """The request cannot be served as it is; sending it again gives the same answer.

    ``parameter`` is the parameter at fault, if any; ``code`` is OpenAI's code of the cause.
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
    max_tokens: int | None = None
    """Maximum number of tokens to sample; None for the session's limit."""
    temperature: float | None = None
    """Sampling temperature; None for the session's."""
    stop: tuple[str, ...] = ()
    """Texts at which the reply ends; the first one that occurs is cut off."""
    body_bytes: int = 0
    """Size of the request, in bytes."""

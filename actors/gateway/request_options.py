"""Rules for a request's options: supported, harmless or refused.

The engine reports log softmax(logits / temperature) over the full vocabulary.  With top-p, a penalty or a grammar it
would sample from another distribution, and training would use wrong log-probabilities.  So an option is supported, or
known to change no token, or has its neutral value; all others, unknown ones included, are refused.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple, TypeVar, cast

import msgspec

from actors.gateway.chat_request import ChatTool, GatewayRequestError, describe_json_error
from sandbox.http.json_structure import garbage_collection_paused

S = TypeVar("S", bound=msgspec.Struct)

_RAW = msgspec.json.Decoder(dict[str, msgspec.Raw])
_ANY = msgspec.json.Decoder()


@dataclass(frozen=True, slots=True)
class RequestOptionRules:
    """Option rules of one API, by name."""

    harmless: frozenset[str]
    """Options that are accepted and ignored: no sampled token depends on them."""
    neutral: Mapping[str, object]
    """Options that are accepted only with the given value."""

    def read_request(self, body: bytes, model: type[S]) -> S:
        """Parse ``body`` and check its other options.  Raises :class:`GatewayRequestError`."""
        try:
            with garbage_collection_paused():
                given = _RAW.decode(body)
                for name in given.keys() - self.harmless - set(model.__struct_encode_fields__):
                    self._check(name, _ANY.decode(given[name]))
                return msgspec.json.decode(body, type=model)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise GatewayRequestError(f"the request cannot be read: {describe_json_error(body, error)}") from error

    def _check(self, name: str, value: object) -> None:
        if value is None:
            return
        if name not in self.neutral:
            raise GatewayRequestError(
                f"{name} is unknown and might change the sampled tokens: leave it out", parameter=name
            )
        if value != (neutral := self.neutral[name]):
            only = "" if neutral is None else f" or use {msgspec.json.encode(neutral).decode()}"
            raise GatewayRequestError(
                f"{name} = {msgspec.json.encode(value).decode()[:100]} would sample from another distribution than the "
                f"log-probabilities describe, or is not supported: leave it out{only}",
                parameter=name,
            )


class ToolChoice(NamedTuple):
    """The rules of a request about calls: whether the reply may call, and which tools."""

    may_call: bool
    allowed: frozenset[str] | None = None
    """Names of the tools that the model may see; None for all."""

    def select(self, tools: Iterable[ChatTool]) -> tuple[ChatTool, ...]:
        return tuple(tool for tool in tools if self.allowed is None or tool.name in self.allowed)


def read_tool_choice(choice: str | Mapping[str, object] | None) -> ToolChoice:
    """Read the ``tool_choice`` of OpenAI's APIs.  Raises :class:`GatewayRequestError` if it forces a call."""
    allowed: frozenset[str] | None = None
    if isinstance(choice, Mapping) and choice.get("type") == "allowed_tools":
        given = cast("Mapping[str, object]", choice.get("allowed_tools", choice))
        try:
            found = msgspec.convert(given, _AllowedTools)
        except msgspec.ValidationError as error:
            raise GatewayRequestError(f"the allowed tools cannot be read: {error}", parameter="tool_choice") from error
        allowed = frozenset(tool.function.name if tool.function else tool.name for tool in found.tools)
        choice = found.mode
    if choice not in (None, "auto", "none"):
        raise forced_call_refused('"auto" or "none"')
    return ToolChoice(choice != "none", allowed)


def forced_call_refused(instead: str) -> GatewayRequestError:
    """Return the refusal of a request that forces a call."""
    return GatewayRequestError(
        "a tool_choice that forces a call needs a grammar, with which the sampler draws from another distribution "
        f"than the log-probabilities describe: use {instead}",
        parameter="tool_choice",
    )


class _AllowedFunction(msgspec.Struct):
    name: str


class _AllowedTool(msgspec.Struct):
    name: str = ""
    function: _AllowedFunction | None = None
    """The function in chat completions."""


class _AllowedTools(msgspec.Struct):
    mode: str
    tools: list[_AllowedTool]

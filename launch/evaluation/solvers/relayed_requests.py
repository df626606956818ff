"""Reads a harness's requests to a model at a URL.  Pure.

The gateway refuses what it cannot sample or train on; a model at a URL answers what it likes.  Of a request that the
gateway would refuse, the conversation and the tools are read, with a call's arguments as one text if they are no JSON
object (:mod:`launch.evaluation.solvers.relayed_replies`), and results in the order in which they are sent.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import cast

import msgspec

from actors.gateway.anthropic_requests import read_anthropic_request
from actors.gateway.api_types import ApiCall
from actors.gateway.chat_request import ChatRequest, GatewayRequestError
from actors.gateway.openai_requests import read_openai_request
from actors.gateway.responses_requests import read_responses_request
from launch.evaluation.solvers.relayed_replies import read_arguments, read_object, write_arguments
from protocol.events import JsonValue

_READERS: Mapping[str, Callable[[bytes], ApiCall]] = {
    "chat/completions": read_openai_request,
    "responses": read_responses_request,
    "messages": read_anthropic_request,
}
_CONVERSATION = frozenset({"messages", "system", "tools", "input", "instructions"})
"""Keys of a request that say what the model reads."""
_IDS = frozenset({"id", "call_id", "tool_call_id", "tool_use_id"})


def read_relayed_request(path: str, body: bytes) -> ChatRequest:
    """Read a request to ``path``, without ``/v1``.  Raises GatewayRequestError for one whose conversation cannot be
    told."""
    if (read := _READERS.get(path)) is None:
        raise GatewayRequestError(f"requests to /v1/{path} are not read")
    try:
        return read(body).request
    except GatewayRequestError as error:
        if (mended := _mend_request(body)) is None:
            raise
        refused = error
    needed = {"max_tokens": 1} if path == "messages" else {}
    for keeps_ids in (True, False):
        request = mended if keeps_ids else cast("dict[str, JsonValue]", _without_ids(mended))
        try:
            return read(msgspec.json.encode({**request, **needed})).request
        except GatewayRequestError as error:
            refused = error
    raise refused


def _mend_request(body: bytes) -> dict[str, JsonValue] | None:
    """Return the conversation of a request, with arguments that the readers take; None if it is no JSON object."""
    if (given := read_object(body)) is None:
        return None
    said = {key: value for key, value in given.items() if key in _CONVERSATION}
    return cast(
        "dict[str, JsonValue]", {**said, **{key: _mend(said[key]) for key in ("messages", "input") if key in said}}
    )


def _mend(value: object) -> object:
    """Return messages, items or blocks with the arguments of their calls as the readers take them."""
    if isinstance(value, list):
        return [_mend(each) for each in cast("list[object]", value)]
    if not isinstance(value, dict):
        return value
    found = cast("dict[str, object]", value)
    if found.get("type") == "tool_use":
        return {**found, "name": found.get("name") or "", "input": read_arguments(write_arguments(found.get("input")))}
    if found.get("type") == "function_call":
        return _mend_function(found)
    parts = {key: _mend(found[key]) for key in ("content", "tool_calls") if key in found}
    if isinstance(function := found.get("function"), dict):
        parts["function"] = _mend_function(cast("dict[str, object]", function))
    return {**found, **parts}


def _mend_function(found: dict[str, object]) -> dict[str, object]:
    arguments = msgspec.json.encode(read_arguments(write_arguments(found.get("arguments")))).decode()
    return {**found, "name": found.get("name") or "", "arguments": arguments}


def _without_ids(value: object) -> object:
    """Return a request in which nothing says which call a result is of: so results stay in their order."""
    if isinstance(value, list):
        return [_without_ids(each) for each in cast("list[object]", value)]
    if not isinstance(value, dict):
        return value
    found = cast("dict[str, object]", value)
    return {key: "" if key in _IDS else _without_ids(each) for key, each in found.items()}

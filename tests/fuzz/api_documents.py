"""OpenAPI documents of the APIs that have none of their own: the gateway's, the evaluation relay's, the monitor's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from actors.gateway.anthropic_replies import AnthropicErrorBody
from actors.gateway.anthropic_requests import AnthropicMessagesRequest
from actors.gateway.openai_replies import OpenAIErrorBody
from actors.gateway.openai_requests import OpenAIChatRequest
from actors.gateway.responses_input import ResponsesRequest

Json = dict[str, Any]

_GATEWAY_REFUSALS = (400, 401, 403, 404, 408, 413, 429, 503)
_RELAY_REFUSALS = (401, 408, 413, 429, 502, 503)
_MONITOR_REFUSALS = (400, 404, 410)
_TEXT = {"type": "string"}


def gateway_document() -> Json:
    """Return the document of the gateway, whose requests and errors are those of the types that it reads and writes."""
    types = [OpenAIChatRequest, ResponsesRequest, AnthropicMessagesRequest, OpenAIErrorBody, AnthropicErrorBody]
    schemas, components = _schemas(types)
    chat, responses, messages, openai_error, anthropic_error = schemas
    posts = {
        "/v1/chat/completions": (chat, openai_error),
        "/v1/responses": (responses, openai_error),
        "/v1/messages": (messages, anthropic_error),
        "/v1/messages/count_tokens": (messages, anthropic_error),
    }
    paths: Json = {
        path: {"post": _operation(_GATEWAY_REFUSALS, error, body=body)} for path, (body, error) in posts.items()
    }
    paths["/v1/models"] = {"get": _operation(_GATEWAY_REFUSALS, openai_error)}
    paths["/v1/models/{name}"] = {"get": _operation(_GATEWAY_REFUSALS, openai_error, path=["name"])}
    return _document(paths, components)


def relay_document() -> Json:
    """Return the document of the relay, which passes any body on."""
    types = [OpenAIChatRequest, ResponsesRequest, AnthropicMessagesRequest]
    schemas, components = _schemas(types)
    properties = {"type": {"const": "error"}, "error": {"type": "object", "required": ["type", "message"]}}
    error = {"type": "object", "required": ["type", "error"], "properties": properties}
    bodies = dict(zip(("/v1/chat/completions", "/v1/responses", "/v1/messages"), schemas, strict=True))
    paths: Json = {path: {"post": _operation(_RELAY_REFUSALS, error, body=body)} for path, body in bodies.items()}
    paths["/v1/models"] = {"get": _operation(_RELAY_REFUSALS, error)}
    return _document(paths, components)


def monitor_document(runs: Sequence[str], trajectories: Sequence[str]) -> Json:
    """Return the document of the monitor, whose runs and trajectories are one of these or any text.  Streams of events
    are left out: they do not end."""
    error = {
        "type": "object",
        "required": ["error"],
        "properties": {"error": {"type": "string", "pattern": "^[^\n]*$"}},
    }
    number = {"anyOf": [{"type": "integer"}, _TEXT]}
    rows = dict.fromkeys(("offset", "limit", "sort", "order", "status", "step", "task", "group", "q"), number)
    queries: dict[str, dict[str, Json]] = {
        "/head": {},
        "/state": {},
        "/config": {},
        "/summary": {},
        "/metrics": {"names": _TEXT, "after": number, "points": number},
        "/steps": rows,
        "/steps/{step}": {},
        "/groups": rows,
        "/groups/{group}": {},
        "/groups/{group}/export": {},
        "/trajectories": rows,
        "/trajectories/{trajectory}": {},
        "/trajectories/{trajectory}/tokens": {"segment": number, "start": number, "limit": number},
        "/trajectories/{trajectory}/pictures/{number}": {},
        "/trajectories/{trajectory}/export": {},
        "/recordings/{recording}": {},
        "/activity": {"since": number, "until": number, "slots": number},
    }
    known = {"run": [*runs, "-"], "trajectory": [*trajectories], "recording": [*trajectories]}
    paths: Json = {"/api/runs": {"get": _operation(_MONITOR_REFUSALS, error)}}
    for rest, query in queries.items():
        names = ["run", *(part[1:-1] for part in rest.split("/") if part.startswith("{"))]
        operation = _operation(_MONITOR_REFUSALS, error, path=names, query=query, known=known)
        paths[f"/api/runs/{{run}}{rest}"] = {"get": operation}
    return _document(paths, {})


def _schemas(types: Sequence[type]) -> tuple[Sequence[Json], Json]:
    """Return the types' schemas and the components that these name."""
    return msgspec.json.schema_components(
        types, schema_hook=lambda _: {"description": "anything"}, ref_template="#/components/schemas/{name}"
    )


def _document(paths: Json, components: Mapping[str, Any]) -> Json:
    info = {"title": "api", "version": "1"}
    return {"openapi": "3.1.0", "info": info, "paths": paths, "components": {"schemas": dict(components)}}


def _operation(
    refusals: Sequence[int],
    error: Json,
    *,
    body: Json | None = None,
    path: Sequence[str] = (),
    query: Mapping[str, Json] | None = None,
    known: Mapping[str, list[str]] | None = None,
) -> Json:
    """Return an operation; a path parameter in ``known`` is one of its values or a text, others a number or a text."""
    anything = {"anyOf": [{"type": "integer", "minimum": 0, "maximum": 9}, {"type": "string", "minLength": 1}]}
    schemas = {
        name: {"anyOf": [{"enum": known[name]}, {"type": "string", "minLength": 1}]}
        if known and name in known
        else anything
        for name in path
    }
    parameters = [{"name": name, "in": "path", "required": True, "schema": schema} for name, schema in schemas.items()]
    parameters += [{"name": name, "in": "query", "schema": schema} for name, schema in (query or {}).items()]
    refusal = {"description": "refused", "content": {"application/json": {"schema": error}}}
    operation: Json = {"responses": {"200": {"description": "answered"}, **{str(each): refusal for each in refusals}}}
    if parameters:
        operation["parameters"] = parameters
    if body is not None:
        operation["requestBody"] = {"required": True, "content": {"application/json": {"schema": body}}}
    return operation

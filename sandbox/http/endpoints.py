"""Builds the routes and the OpenAPI document from one table of endpoints, so that they agree.

A request's body is JSON of at most its message's ``most_bytes``, within the limits of :mod:`.body_budget` and
:mod:`.json_structure`, and is checked against its model before anything else sees it, a large one in a thread. Every
reply is a model too; a failure is an :class:`~sandbox.http.messages.ErrorReply`.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import msgspec
import orjson
from pydantic import BaseModel, ValidationError
from pydantic.json_schema import models_json_schema
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route

from protocol.cli.formatting import format_bytes
from protocol.cli.validation_errors import describe_invalid_value
from sandbox.http import failures
from sandbox.http.body_budget import MAX_BODY_BYTES, BodyBudget
from sandbox.http.connections import client_at
from sandbox.http.json_structure import JsonStructure, TooMuchStructureError, garbage_collection_paused
from sandbox.http.messages import ApiMessage, ErrorReply, HttpError, HttpReply

BODY_DEADLINE_S = 120.0
"""Seconds in which a body arrives, and before that those in which the budget has room for it."""
_LARGE_BYTES = 1 << 20
"""Bytes from which a body is parsed in a thread."""
_UNIQUE_FIELDS = frozenset({"deadline_s", "request_id"})
"""Fields that differ between a request and its repetition."""
_log = logging.getLogger(__name__)
Body = TypeVar("Body", bound=ApiMessage)


@dataclass(frozen=True, slots=True)
class HttpCall(Generic[Body]):
    """One request whose body is valid."""

    body: Body
    digest: str
    """Hash of the body: equal for a request and its repetition, whatever their deadlines and request ids."""
    request: Request

    async def wait_until_gone(self) -> None:
        """Return when the client has disconnected."""
        while (await self.request.receive())["type"] != "http.disconnect":
            continue


@dataclass(frozen=True, slots=True)
class HttpEndpoint(Generic[Body]):
    """One endpoint: path, models and handler."""

    path: str
    summary: str
    body: type[Body] | None
    """None for GET."""
    reply: type[ApiMessage]
    handler: Callable[[HttpCall[Body]], Awaitable[HttpReply]]
    failures: Sequence[int] = ()
    """Statuses in addition to 200, and to 400, 413 and 415 where there is a body."""


_STATUS = {
    400: "the request does not match its model",
    401: "the token is missing or wrong",
    404: "unknown lease",
    409: "not possible in this state: see the code",
    410: "the sandbox no longer exists: the code names the cause",
    413: "too large",
    415: "from a browser, and not JSON",
    422: "the task or file is invalid",
    429: "no free slot; Retry-After",
    502: "a pool server could not be reached",
    503: "infrastructure failed; Retry-After",
    504: "not done within the deadline",
}


def endpoint_route(endpoint: HttpEndpoint[Any], budget: BodyBudget) -> Route:
    """Build the route of an endpoint; every failure of its handler becomes a reply.  Bodies count in ``budget``."""

    async def handle(request: Request) -> Response:
        try:
            async with AsyncExitStack() as held:
                reply = await endpoint.handler(await _call(endpoint, request, budget, held))
        except ClientDisconnect:
            reply = HttpError(400, failures.BAD_REQUEST, "the request was cut off").reply()
        except Exception as error:  # noqa: BLE001  the boundary: every failure becomes a reply, and a defect is logged
            failure = failures.to_http_error(error)
            if failure.status == 500:
                _log.exception("%s failed by a defect", endpoint.path)
            reply = failure.reply()
        return as_response(reply)

    return Route(endpoint.path, handle, methods=["POST" if endpoint.body else "GET"])


def as_response(reply: HttpReply) -> Response:
    """Convert a reply to a Starlette response."""
    headers = {"retry-after": str(max(1, round(reply.retry_after_s)))} if reply.retry_after_s else {}
    return Response(reply.body, reply.status, headers, media_type="application/json")


async def _call(
    endpoint: HttpEndpoint[Any], request: Request, budget: BodyBudget, held: AsyncExitStack
) -> HttpCall[Any]:
    """Receive and check a request, whose body counts until ``held`` is left."""
    model = endpoint.body
    if model is None:
        return HttpCall(ApiMessage(), "", request)
    refuse_other_sites(request)
    raw = await held.enter_async_context(receive_body(request, budget, model.most_bytes))
    if len(raw) < _LARGE_BYTES:
        return _parse(model, raw, request)
    return await asyncio.to_thread(_parse, model, raw, request)


def _parse(model: type[ApiMessage], raw: bytearray, request: Request) -> HttpCall[Any]:
    try:
        with garbage_collection_paused():
            body = model.model_validate_json(raw)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(str(part) for part in first["loc"]) or "the body"
        raise HttpError(400, failures.BAD_REQUEST, f"{where} is required" if first["type"] == "missing" else
                        f"{where}: {describe_invalid_value(first)}") from error  # fmt: skip
    return HttpCall(body, _digest(raw), request)


def _digest(raw: bytearray) -> str:
    """Hash a JSON object without the fields that differ in its repetition."""
    try:
        fields = msgspec.json.decode(raw, type=dict[str, msgspec.Raw])
    except msgspec.DecodeError:  # what only the other parser takes, such as a lone surrogate
        return hashlib.sha256(raw).hexdigest()
    digest = hashlib.sha256()
    for name in sorted(fields.keys() - _UNIQUE_FIELDS):
        digest.update(orjson.dumps(name))
        digest.update(fields[name])
    return digest.hexdigest()


def refuse_other_sites(request: Request) -> None:
    """Raise HttpError for a request that a web page of any site can send: a browser asks no permission to send other
    types than JSON."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if "origin" in request.headers and kind != "application/json":
        raise HttpError(415, failures.BAD_REQUEST, "send JSON: content-type application/json")


@asynccontextmanager
async def receive_body(
    request: Request, budget: BodyBudget, most_bytes: int = MAX_BODY_BYTES
) -> AsyncGenerator[bytearray]:
    """Give a request's body of at most ``most_bytes``, which counts in ``budget`` during the block.

    Raises HttpError before anything is read if the declared length is too large, as soon as the body is or has too
    much structure, and if there is no room for it in time, or it is not complete.
    """
    declared = request.headers.get("content-length", "")
    size = int(declared) if declared.isdecimal() else most_bytes  # in pieces: it may have as much
    if size > most_bytes:
        raise _too_large(most_bytes)
    client = client_at(request.client.host) if request.client else ""
    async with AsyncExitStack() as held:
        try:
            async with asyncio.timeout(BODY_DEADLINE_S):
                shrink_to = await held.enter_async_context(budget.hold(client, size))
        except TimeoutError:
            raise HttpError(
                503, failures.INFRA_FAILED, "the server is at work on too many large requests", retry_after_s=1.0
            ) from None
        try:
            async with asyncio.timeout(BODY_DEADLINE_S):
                body = [await _read(request, most_bytes)]
        except TimeoutError:
            raise HttpError(408, failures.BAD_REQUEST, f"a body arrives within {BODY_DEADLINE_S:g} s") from None
        shrink_to(len(body[0]))
        yield body.pop()  # which is freed as soon as it is parsed


async def _read(request: Request, most_bytes: int) -> bytearray:
    body, structure = bytearray(), JsonStructure()
    async for piece in request.stream():
        body += piece
        if len(body) > most_bytes:
            raise _too_large(most_bytes)
        try:
            structure.add(piece)
        except TooMuchStructureError as error:
            raise HttpError(413, failures.BAD_REQUEST, str(error)) from None
    return body


def _too_large(most_bytes: int) -> HttpError:
    return HttpError(413, failures.BAD_REQUEST, f"this request has at most {format_bytes(most_bytes)}")


def openapi_document(title: str, endpoints: Sequence[HttpEndpoint[Any]]) -> bytes:
    """Render the OpenAPI document of the table."""
    models: set[type[BaseModel]] = {ErrorReply}
    for each in endpoints:
        models |= {each.reply} | ({each.body} if each.body else set())
    _, schemas = models_json_schema(
        [(model, "validation") for model in sorted(models, key=lambda model: model.__name__)],
        ref_template="#/components/schemas/{model}",
    )
    paths = {each.path: {"post" if each.body else "get": _operation(each)} for each in endpoints}
    return orjson.dumps(
        {
            "openapi": "3.1.0",
            "info": {"title": title, "version": "1"},
            "paths": paths,
            "components": {"schemas": schemas["$defs"]},
        }
    )


def _operation(endpoint: HttpEndpoint[Any]) -> dict[str, object]:
    statuses = [*endpoint.failures, *((400, 413, 415) if endpoint.body else ())]
    described: dict[str, object] = {
        "operationId": endpoint.path.strip("/"),
        "summary": endpoint.summary,
        "responses": {
            "200": {"description": "done", "content": _content(endpoint.reply)},
            **{str(each): {"description": _STATUS[each], "content": _content(ErrorReply)} for each in sorted(statuses)},
        },
    }
    if endpoint.body is not None:
        described["requestBody"] = {"required": True, "content": _content(endpoint.body)}
    return described


def _content(model: type[ApiMessage]) -> dict[str, object]:
    return {"application/json": {"schema": {"$ref": f"#/components/schemas/{model.__name__}"}}}


async def not_found(request: Request, _: Exception) -> Response:
    """Answer a path or a method that does not exist."""
    return as_response(
        HttpError(
            404, "NO_SUCH_ENDPOINT", f"there is no {request.method} {request.url.path}; see /openapi.json"
        ).reply()
    )

"""The gateway's HTTP application: paths, keys, and errors in the format of the requested API.

An engine that fails before any part of a reply was sent gives status 503, after which clients retry; later failures are
events (:mod:`.event_stream`).  A client that disconnects cancels its handler, and with it the sampling.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Protocol

from aiohttp import web

from actors.gateway import (
    anthropic_replies,
    anthropic_requests,
    event_stream,
    openai_replies,
    openai_requests,
    responses_replies,
    responses_requests,
)
from actors.gateway.api_types import ApiCall, ReplyEncoder, ResponseEncoder, ResponseMetadata
from actors.gateway.chat_request import GatewayRequestError
from actors.gateway.request_bodies import RequestBodies
from actors.gateway.session import GatewaySession
from protocol.errors import InfraError
from sandbox.http.aiohttp_connections import serving

_JSON = "application/json"
_RETRY_AFTER = {"Retry-After": "1"}

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class SessionRegistry(Protocol):
    """The open sessions, and the model that is served."""

    model: str
    created: int
    quiet_s: float

    def authenticate(self, key: str) -> GatewaySession:
        """Return the session of an API key.  Raises :class:`GatewayRequestError`."""
        ...


def create_app(sessions: SessionRegistry) -> web.Application:
    """Return the application that serves ``sessions``."""
    bodies = RequestBodies()

    @asynccontextmanager
    async def receive_body(request: web.Request, session: GatewaySession) -> AsyncGenerator[bytes]:
        session.check_body_size(request.content_length or 0)
        async with bodies.receive(request, session.name) as body:
            session.check_body_size(len(body))
            yield body

    def replying(read: Callable[[bytes], ApiCall], replies: ReplyEncoder) -> Handler:
        async def handle(request: web.Request) -> web.StreamResponse:
            session = sessions.authenticate(_key(request))
            async with receive_body(request, session) as body:
                call = read(body)
            named = ResponseMetadata(sessions.model, sessions.created)
            if call.stream:
                return await event_stream.stream_response(
                    request, session, call.request, replies.stream_encoder(call, named), sessions.quiet_s
                )
            answer = await session.complete(call.request)
            return web.Response(body=replies.encode_reply(call, answer, named), content_type=_JSON)

        return handle

    async def count(request: web.Request) -> web.Response:
        session = sessions.authenticate(_key(request))
        async with receive_body(request, session) as body:
            asked = anthropic_requests.read_count_tokens_request(body)
        tokens = await session.count_prompt_tokens(asked)
        return web.Response(body=anthropic_replies.encode_token_count(tokens), content_type=_JSON)

    async def models(request: web.Request) -> web.Response:
        sessions.authenticate(_key(request))
        body = _replies(request).encode_models([sessions.model], sessions.created)
        return web.Response(body=body, content_type=_JSON)

    async def model(request: web.Request) -> web.Response:
        sessions.authenticate(_key(request))
        if (name := request.match_info["name"]) != sessions.model:
            raise GatewayRequestError(
                f"there is no model {name!r}, only {sessions.model!r}", status=404, code="model_not_found"
            )
        return web.Response(body=_replies(request).encode_model(name, sessions.created), content_type=_JSON)

    async def root(request: web.Request) -> web.Response:
        """Answer Claude Code, which looks whether anything listens."""
        del request
        return web.Response()

    app = web.Application(middlewares=[_api_errors])
    app.router.add_post("/v1/chat/completions", replying(openai_requests.read_openai_request, openai_replies))
    app.router.add_post("/v1/responses", replying(responses_requests.read_responses_request, responses_replies))
    app.router.add_post("/v1/messages", replying(anthropic_requests.read_anthropic_request, anthropic_replies))
    app.router.add_post("/v1/messages/count_tokens", count)
    app.router.add_get("/", root)
    app.router.add_get("/v1/models", models)
    app.router.add_get("/v1/models/{name:.+}", model)
    return app


@web.middleware
async def _api_errors(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Turn errors into responses in the format of the requested API."""
    try:
        with serving(request):
            return await handler(request)
    except (GatewayRequestError, InfraError) as error:
        return _refusal(request, event_stream.to_request_error(error))
    except web.HTTPException as error:
        return _refusal(
            request, GatewayRequestError(f"{request.method} {request.path}: {error.reason}", status=error.status)
        )


def _refusal(request: web.Request, refused: GatewayRequestError) -> web.Response:
    headers = _RETRY_AFTER if refused.status == 503 else {}
    body = _replies(request).encode_error(refused)
    return web.Response(status=refused.status, body=body, content_type=_JSON, headers=headers)


def _replies(request: web.Request) -> ResponseEncoder:
    anthropic = "anthropic-version" in request.headers or request.path.startswith("/v1/messages")
    return anthropic_replies if anthropic else openai_replies


def _key(request: web.Request) -> str:
    scheme, _, given = request.headers.get("Authorization", "").partition(" ")
    return given.strip() if scheme.lower() == "bearer" else request.headers.get("x-api-key", "")

"""The gateway as HTTP: paths, keys, and errors in the words of the API that was spoken.

An engine that fails before anything of a reply was told is a status, 503, after which clients ask again; how a streamed
one is told is :mod:`.stream`'s.  A client that leaves cancels its handler, and with it the sampling.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Protocol

from aiohttp import web

from actors.gateway import anthropic_replies, anthropic_requests, event_stream, openai_replies, openai_requests
from actors.gateway.api_types import ApiCall, ResponseEncoder, ResponseMetadata
from actors.gateway.chat_request import GatewayRequestError
from actors.gateway.session import GatewaySession
from protocol.errors import InfraError

MAX_BODY_BYTES = 64 << 20
_JSON = "application/json"
_AGAIN = {"Retry-After": "1"}

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class SessionRegistry(Protocol):
    """Who is let in, and what is served."""

    model: str
    created: int
    quiet_s: float

    def authenticate(self, key: str) -> GatewaySession:
        """Raises :class:`Refused`."""
        ...


def create_app(desk: SessionRegistry) -> web.Application:
    def replying(read: Callable[[bytes], ApiCall], replies: ResponseEncoder) -> Handler:
        async def handle(request: web.Request) -> web.StreamResponse:
            session = desk.authenticate(_key(request))
            call = read(await request.read())
            named = ResponseMetadata(desk.model, desk.created)
            if call.stream:
                return await event_stream.stream_response(
                    request, session, call.request, replies.stream_encoder(call, named), desk.quiet_s
                )
            answer = await session.complete(call.request)
            return web.Response(body=replies.encode_reply(call, answer, named), content_type=_JSON)

        return handle

    async def count(request: web.Request) -> web.Response:
        session = desk.authenticate(_key(request))
        tokens = session.count_prompt_tokens(anthropic_requests.read_count_tokens_request(await request.read()))
        return web.Response(body=anthropic_replies.encode_token_count(tokens), content_type=_JSON)

    async def models(request: web.Request) -> web.Response:
        desk.authenticate(_key(request))
        return web.Response(body=_replies(request).encode_models([desk.model], desk.created), content_type=_JSON)

    async def model(request: web.Request) -> web.Response:
        desk.authenticate(_key(request))
        if (name := request.match_info["name"]) != desk.model:
            raise GatewayRequestError(
                f"there is no model {name!r}, but {desk.model!r}", status=404, code="model_not_found"
            )
        return web.Response(body=_replies(request).encode_model(name, desk.created), content_type=_JSON)

    app = web.Application(middlewares=[_in_its_words], client_max_size=MAX_BODY_BYTES)
    app.router.add_post("/v1/chat/completions", replying(openai_requests.read_openai_request, openai_replies))
    app.router.add_post("/v1/messages", replying(anthropic_requests.read_anthropic_request, anthropic_replies))
    app.router.add_post("/v1/messages/count_tokens", count)
    app.router.add_get("/v1/models", models)
    app.router.add_get("/v1/models/{name:.+}", model)
    return app


@web.middleware
async def _in_its_words(request: web.Request, handler: Handler) -> web.StreamResponse:
    """What is refused, and what failed, as the API that was spoken says it."""
    try:
        return await handler(request)
    except (GatewayRequestError, InfraError) as error:
        return _refusal(request, event_stream.to_request_error(error))
    except web.HTTPException as error:
        return _refusal(
            request, GatewayRequestError(f"{request.method} {request.path}: {error.reason}", status=error.status)
        )


def _refusal(request: web.Request, refused: GatewayRequestError) -> web.Response:
    headers = _AGAIN if refused.status == 503 else {}
    body = _replies(request).encode_error(refused)
    return web.Response(status=refused.status, body=body, content_type=_JSON, headers=headers)


def _replies(request: web.Request) -> ResponseEncoder:
    anthropic = "anthropic-version" in request.headers or request.path.startswith("/v1/messages")
    return anthropic_replies if anthropic else openai_replies


def _key(request: web.Request) -> str:
    scheme, _, given = request.headers.get("Authorization", "").partition(" ")
    return given.strip() if scheme.lower() == "bearer" else request.headers.get("x-api-key", "")

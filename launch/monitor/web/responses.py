"""Builds responses: JSON of the API's types, one-line errors, and messages of event streams."""

from __future__ import annotations

from collections.abc import AsyncIterator

import orjson
from starlette.responses import Response, StreamingResponse

from launch.monitor.api_types import ErrorResponse

HEARTBEAT = b": still here\n\n"
HEARTBEAT_S = 15.0


class ApiError(Exception):
    """A request that is answered with an error status and one line."""

    def __init__(self, status: int, line: str) -> None:
        super().__init__(line)
        self.status, self.line = status, line


def json_response(value: object) -> Response:
    """Return a value as JSON; NaN and infinities become null."""
    return Response(orjson.dumps(value, option=orjson.OPT_NON_STR_KEYS), media_type="application/json")


def error_response(status: int, line: str) -> Response:
    return Response(orjson.dumps(ErrorResponse(line)), status_code=status, media_type="application/json")


def download_response(page: bytes, name: str) -> Response:
    """Return a page as a download; ``name`` must not contain a quote."""
    return Response(page, media_type="text/html", headers={"content-disposition": f'attachment; filename="{name}"'})


def event_message(name: str, data: bytes, id_: str = "") -> bytes:
    """Return one message of an event stream; ``data`` must not contain a newline."""
    head = f"id: {id_}\n" if id_ else ""
    return f"{head}event: {name}\ndata: ".encode() + data + b"\n\n"


def event_stream_response(body: AsyncIterator[bytes]) -> Response:
    return StreamingResponse(body, media_type="text/event-stream", headers={"x-accel-buffering": "no"})

"""The monitor's HTTP side: a page, the API of docs/monitor.md, and live streams that resume exactly.

It only reads run directories.  One poller a run follows its files; requests ask what that knows, so none can slow
another.  On loopback it answers no other host name; beyond it, nobody without the token.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from http import HTTPStatus
from pathlib import Path

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import FileResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from launch.monitor.archive.query_parameters import InvalidQueryError
from launch.monitor.run_follower import RunFollower
from launch.monitor.web.access import LoopbackOnlyMiddleware, SecurityHeadersMiddleware, TokenMiddleware
from launch.monitor.web.api import MonitorApi
from launch.monitor.web.responses import ApiError, error_response
from launch.monitor.web.watched_runs import WatchedRuns
from launch.pages.packages import package_file
from launch.pages.static_files import STATIC_FOLDER


def create_monitor_app(run_dir: Path, token: str = "") -> Starlette:
    """The application for one run and those beside it.  ``token``: what everybody has to show, and then under whatever
    host name; without one only loopback's names are answered.  Raises NoSuchRunError."""
    runs = WatchedRuns(RunFollower(run_dir))

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncGenerator[None]:
        async with runs.run_pollers():
            yield

    gate = Middleware(TokenMiddleware, token) if token else Middleware(LoopbackOnlyMiddleware)
    return Starlette(
        routes=[
            Route("/", _page),
            *MonitorApi(runs).routes(),
            Route("/api/{rest:path}", _unknown),
            Mount("/static", StaticFiles(directory=STATIC_FOLDER)),
            Route("/packages/{name}", _package),
            Route("/{rest:path}", _unknown),
        ],
        middleware=[Middleware(SecurityHeadersMiddleware), gate],
        exception_handlers={
            ApiError: _refused,
            InvalidQueryError: _invalid,
            HTTPException: _no_such,
            Exception: _defect,
        },
        lifespan=lifespan,
    )


async def _page(_: Request) -> Response:
    return FileResponse(STATIC_FOLDER / "index.html")


async def _package(request: Request) -> Response:
    path = package_file(request.path_params["name"])
    return error_response(404, "not installed here: make setup") if path is None else FileResponse(path)


async def _unknown(request: Request) -> Response:
    return error_response(404, f"there is no {request.url.path[:200]} here; the page is at /")


async def _no_such(request: Request, error: Exception) -> Response:
    """Answer what the framework itself refuses: a method, or a missing file."""
    assert isinstance(error, HTTPException)  # noqa: S101  # as below
    asked_wrongly = error.status_code == HTTPStatus.METHOD_NOT_ALLOWED
    line = "only GET is answered" if asked_wrongly else f"{request.url.path[:200]}: {error.detail}"
    return error_response(error.status_code, line)


async def _refused(_: Request, error: Exception) -> Response:
    assert isinstance(error, ApiError)  # noqa: S101  # it is registered for that
    return error_response(error.status, error.line)


async def _invalid(_: Request, error: Exception) -> Response:
    return error_response(400, str(error))


async def _defect(_: Request, error: Exception) -> Response:
    """The server writes the stack to its log after this; the run is not touched by it."""
    return error_response(
        500, f"a defect of the monitor ({type(error).__name__}); its log, monitor.log of a run, says where"
    )

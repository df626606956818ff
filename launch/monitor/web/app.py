"""The HTTP application of the monitor: a page, the API of docs/monitor.md, and event streams that resume exactly.

It only reads run directories.  One poller per run follows its files, and requests read what the poller knows.  On
loopback the application answers only loopback's host names; beyond it, only clients with the token.
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
    """Create the application for a run and the other runs in its folder.

    With a ``token`` every client needs it, under any host name; without one only loopback's names are answered.  Raises
    NoSuchRunError."""
    runs = WatchedRuns(RunFollower(run_dir))

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncGenerator[None]:
        async with runs.run_pollers():
            yield

    access = Middleware(TokenMiddleware, token) if token else Middleware(LoopbackOnlyMiddleware)
    return Starlette(
        routes=[
            Route("/", _page),
            *MonitorApi(runs).routes(),
            Route("/api/{rest:path}", _unknown),
            Mount("/static", StaticFiles(directory=STATIC_FOLDER)),
            Route("/packages/{name}", _package),
            Route("/{rest:path}", _unknown),
        ],
        middleware=[Middleware(SecurityHeadersMiddleware), access],
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
    return error_response(404, "not installed: run `make setup`") if path is None else FileResponse(path)


async def _unknown(request: Request) -> Response:
    return error_response(404, f"there is no {request.url.path[:200]} here; the page is at /")


async def _no_such(request: Request, error: Exception) -> Response:
    """Answer requests that the framework refuses: a wrong method, or a missing file."""
    assert isinstance(error, HTTPException)  # noqa: S101  # as below
    wrong_method = error.status_code == HTTPStatus.METHOD_NOT_ALLOWED
    line = "only GET is allowed" if wrong_method else f"{request.url.path[:200]}: {error.detail}"
    return error_response(error.status_code, line)


async def _refused(_: Request, error: Exception) -> Response:
    assert isinstance(error, ApiError)  # noqa: S101  # it is registered for that
    return error_response(error.status, error.line)


async def _invalid(_: Request, error: Exception) -> Response:
    return error_response(400, str(error))


async def _defect(_: Request, error: Exception) -> Response:
    """Answer after an unexpected error; the server logs its traceback."""
    return error_response(
        500,
        f"internal error of the monitor ({type(error).__name__}); the run's monitor.log has the traceback",
    )

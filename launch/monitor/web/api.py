"""The API of docs/monitor.md: one handler per address.  Handlers read files in a thread."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TypeVar

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from launch.monitor.api_types import GroupDetail
from launch.monitor.archive import query, query_parameters
from launch.monitor.archive.activity import MAX_SLOTS, read_activity
from launch.monitor.archive.catalog import RunCatalog
from launch.monitor.archive.query import PageRequest, RowFilter
from launch.monitor.archive.query_parameters import ListParameters
from launch.monitor.archive.recordings import read_sanitized_recording
from launch.monitor.archive.step_table import LinePosition
from launch.monitor.archive.token_facts import LocatedTrajectory
from launch.monitor.archive.token_pages import MAX_TOKENS, read_token_page
from launch.monitor.archive.trajectory_details import read_trajectory_detail
from launch.monitor.reports.standalone_page import render_group_page, render_trajectory_page
from launch.monitor.run_follower import RunFollower
from launch.monitor.web import event_streams
from launch.monitor.web.responses import ApiError, download_response, event_stream_response, json_response
from launch.monitor.web.watched_runs import WatchedRun, WatchedRuns
from protocol.run_directory.json_fields import parse_json_object
from protocol.run_directory.layout import METRICS_FILE
from protocol.run_directory.page_pictures import pictures_path, read_picture
from protocol.run_directory.recording_reader import recording_path
from protocol.run_directory.trajectory_export import UnreadableTrajectoryError

T = TypeVar("T")

_FILES = {"config": "config.json", "summary": "summary.json"}


class MonitorApi:
    def __init__(self, runs: WatchedRuns) -> None:
        self._runs = runs

    def routes(self) -> list[Route]:
        of = "/api/runs/{run}"
        return [
            Route("/api/runs", self.runs),
            Route(f"{of}/head", self.head),
            Route(f"{of}/state", self.state),
            Route(f"{of}/config", self.file),
            Route(f"{of}/summary", self.file),
            Route(f"{of}/metrics", self.metrics),
            Route(f"{of}/steps", self.steps),
            Route(f"{of}/steps/{{step}}", self.step),
            Route(f"{of}/groups", self.groups),
            Route(f"{of}/groups/{{group}}", self.group),
            Route(f"{of}/groups/{{group}}/export", self.group_file),
            Route(f"{of}/trajectories", self.trajectories),
            Route(f"{of}/trajectories/{{trajectory}}", self.trajectory),
            Route(f"{of}/trajectories/{{trajectory}}/tokens", self.tokens),
            Route(f"{of}/trajectories/{{trajectory}}/pictures/{{number}}", self.picture),
            Route(f"{of}/trajectories/{{trajectory}}/export", self.trajectory_file),
            Route(f"{of}/recordings/{{recording}}", self.recording),
            Route(f"{of}/activity", self.activity),
            Route(f"{of}/events", self.events),
            Route(f"{of}/terminals", self.terminals),
        ]

    async def _run(self, request: Request) -> WatchedRun:
        return await self._runs.open_run(request.path_params["run"])

    async def _follower(self, request: Request) -> RunFollower:
        return (await self._run(request)).follower

    async def runs(self, _: Request) -> Response:
        cards = await asyncio.to_thread(self._runs.list_cards)
        return json_response({"current": self._runs.current.follower.name, "runs": cards})

    async def head(self, request: Request) -> Response:
        query_parameters.reject_unknown(request.query_params, ())
        follower = await self._follower(request)
        return json_response(await asyncio.to_thread(follower.head))

    async def state(self, request: Request) -> Response:
        query_parameters.reject_unknown(request.query_params, ())
        return Response(await (await self._run(request)).encoded_state(), media_type="application/json")

    async def file(self, request: Request) -> Response:
        follower, name = await self._follower(request), _FILES[request.url.path.rpartition("/")[2]]
        found = await asyncio.to_thread(follower.read_object, name)
        if found is None:
            raise ApiError(404, f"{follower.name} has no {name} that can be read yet")
        return Response(found, media_type="application/json")

    async def metrics(self, request: Request) -> Response:
        given = request.query_params
        query_parameters.reject_unknown(given, ("names", "after", "points"))
        after, points = (
            query_parameters.parse_integer(given, "after", -1),
            query_parameters.parse_integer(given, "points", 0, low=1),
        )
        names = [name for name in given.get("names", "").split(",") if name]
        follower = await self._follower(request)
        found = partial(query.select_metrics, names=names, after=after, points=points)
        return json_response(await asyncio.to_thread(follower.query_catalog, found))

    async def steps(self, request: Request) -> Response:
        page = query_parameters.STEP_LIST.parse_page(request.query_params)
        follower = await self._follower(request)
        return json_response(
            await asyncio.to_thread(follower.query_catalog, lambda catalog: query.list_steps(catalog, page))
        )

    async def step(self, request: Request) -> Response:
        """Return the step's line of metrics.jsonl."""
        follower, text = await self._follower(request), request.path_params["step"]
        number = query_parameters.parse_integer({"step": text}, "step", 0)
        position = await asyncio.to_thread(follower.query_catalog, lambda catalog: _line_position(catalog, number))
        line = None if position is None else await asyncio.to_thread(_read, follower.run_dir / METRICS_FILE, *position)
        if line is None:
            raise ApiError(404, f"there is no step {number}, or it was taken back")
        return Response(line, media_type="application/json")

    async def groups(self, request: Request) -> Response:
        return await self._list(request, query_parameters.GROUP_LIST, query.list_groups)

    async def _list(
        self,
        request: Request,
        parameters: ListParameters,
        list_rows: Callable[[RunCatalog, RowFilter, PageRequest], object],
    ) -> Response:
        given, page = request.query_params, parameters.parse_page(request.query_params)

        def found(catalog: RunCatalog) -> object:
            return list_rows(catalog, parameters.parse_filter(given, query.newest_step(catalog)), page)

        follower = await self._follower(request)
        return json_response(await asyncio.to_thread(follower.query_catalog, found))

    async def group(self, request: Request) -> Response:
        _, found = await self._grouped(request)
        return json_response(found)

    async def group_file(self, request: Request) -> Response:
        """Return the group with its members as one file that needs no monitor."""
        follower, found = await self._grouped(request)
        number = found.row.group
        made = await _readable(
            lambda: render_group_page(follower.name, follower.read_context(), found, follower.members(number))
        )
        return download_response(made, f"{follower.name}-group-{number}.html")

    async def _grouped(self, request: Request) -> tuple[RunFollower, GroupDetail]:
        follower, text = await self._follower(request), request.path_params["group"]
        number = query_parameters.parse_integer({"group": text}, "group", 0)
        found = await asyncio.to_thread(follower.group, number)
        if found is None:
            raise ApiError(404, f"there is no group {number} in {follower.name}")
        return follower, found

    async def trajectories(self, request: Request) -> Response:
        return await self._list(request, query_parameters.TRAJECTORY_LIST, query.list_trajectories)

    async def trajectory(self, request: Request) -> Response:
        follower, where = await self._located(request)
        return json_response(await _readable(lambda: read_trajectory_detail(follower.read_context(), where)))

    async def tokens(self, request: Request) -> Response:
        given = request.query_params
        query_parameters.reject_unknown(given, ("segment", "start", "limit"))
        segment, start = (
            query_parameters.parse_integer(given, "segment", 0),
            query_parameters.parse_integer(given, "start", 0),
        )
        limit = query_parameters.parse_integer(given, "limit", MAX_TOKENS, low=1)
        follower, where = await self._located(request)
        page = await _readable(lambda: read_token_page(follower.read_context(), where, segment, start, limit))
        if page is None:
            raise ApiError(404, f"{where.row.id} has no segment {segment}")
        return json_response(page)

    async def picture(self, request: Request) -> Response:
        """Return a JPEG of what the agent's browser showed.  It comes from a sandbox, and is checked to be one."""
        follower, where = await self._located(request)
        number = query_parameters.parse_integer({"number": request.path_params["number"]}, "number", 0)
        path = pictures_path(follower.run_dir, where.row.recording)
        found = await asyncio.to_thread(read_picture, path, number)
        if found is None:
            raise ApiError(404, f"{where.row.id} has no picture {number}, or it was removed")
        return Response(found, media_type="image/jpeg")

    async def trajectory_file(self, request: Request) -> Response:
        """Return the trajectory as one file that needs no monitor."""
        follower, where = await self._located(request)
        made = await _readable(lambda: render_trajectory_page(follower.name, follower.read_context(), where))
        return download_response(made, f"{follower.name}-{where.row.id}.html")

    async def _located(self, request: Request) -> tuple[RunFollower, LocatedTrajectory]:
        follower, name = await self._follower(request), request.path_params["trajectory"]
        where = await asyncio.to_thread(follower.locate, name)
        if where is None:
            raise ApiError(404, f"{follower.name} has no trajectory {name[:80]!r}")
        return follower, where

    async def recording(self, request: Request) -> Response:
        follower, name = await self._follower(request), request.path_params["recording"]
        path = recording_path(follower.run_dir, name)
        if path is None or not await asyncio.to_thread(path.exists):
            raise ApiError(404, f"there is no terminal recording {name[:80]!r}, or it was deleted")
        body = await asyncio.to_thread(b"".join, read_sanitized_recording(path))
        return Response(body, media_type="application/x-asciicast")

    async def activity(self, request: Request) -> Response:
        given = request.query_params
        query_parameters.reject_unknown(given, ("since", "until", "slots"))
        slots = query_parameters.parse_integer(given, "slots", 300, low=1, high=MAX_SLOTS)
        since, until = query_parameters.parse_number(given, "since"), query_parameters.parse_number(given, "until")
        if since is not None and until is not None and since > until:
            raise ApiError(400, f"since={given['since'][:40]} is after until={given['until'][:40]}")
        follower = await self._follower(request)
        found = await asyncio.to_thread(read_activity, follower.run_dir, since, until, slots)
        return json_response(found)

    async def events(self, request: Request) -> Response:
        query_parameters.reject_unknown(request.query_params, ("cursor",))
        watched = await self._run(request)
        cursor = event_streams.parse_event_cursor(
            request.headers.get("last-event-id"), request.query_params.get("cursor"), watched
        )
        return event_stream_response(event_streams.stream_events(watched, cursor))

    async def terminals(self, request: Request) -> Response:
        watched, given = await self._run(request), request.query_params
        query_parameters.reject_unknown(given, ("watch", "cursor", "from"))
        paths = event_streams.find_recordings(watched.follower.run_dir, given.get("watch", "").split(","))
        offsets = event_streams.parse_recording_cursor(paths, request.headers.get("last-event-id"), given.get("cursor"))
        return event_stream_response(
            event_streams.stream_terminals(watched, paths, offsets, from_end=given.get("from") == "end")
        )


async def _readable(read: Callable[[], T]) -> T:
    """Read a trajectory in a thread.  Raises ApiError if it is damaged."""
    try:
        return await asyncio.to_thread(read)
    except UnreadableTrajectoryError as error:
        raise ApiError(404, str(error)) from error


def _line_position(catalog: RunCatalog, step: int) -> LinePosition | None:
    index = catalog.steps.find_index(step)
    return None if index is None else catalog.steps.line_position(index)


def _read(path: Path, offset: int, length: int) -> bytes | None:
    """Return a line of a file; None if it is no longer a JSON object."""
    try:
        with path.open("rb") as file:
            file.seek(offset)
            line = file.read(length)
    except OSError:
        return None
    return None if parse_json_object(line) is None else line

"""The driver's control server: reads requests from the run's directory, has each executed, and answers with an event.

Each request is handled by a task of its own, so that a paused run accepts the request to resume.  Every request gets
exactly one answer, also if the run ends first.  The server ends when it is cancelled.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from launch.control.requests import (
    REQUEST_ANSWERED_EVENT,
    REQUEST_TAKEN_EVENT,
    REQUESTS_FOLDER,
    ControlRequest,
    list_request_files,
    read_request,
)
from protocol.errors import LongshoreError, UserError
from protocol.events import EventLog

LOOK_S = 0.5
_ENDED = "the run ended before it could be done"


@dataclass(slots=True, kw_only=True)
class ControlServer:
    run_dir: Path
    events: EventLog
    execute: Callable[[ControlRequest], Awaitable[str]]
    """Executes a request and describes the result (:meth:`launch.control.actions.ControlActions.execute`)."""
    run_started_at: float = 0.0
    """Unix time; older requests were meant for a start of the run that has ended."""
    _taken: set[str] = field(default_factory=set[str])
    """Names of the request files that are being handled."""

    async def serve(self) -> None:
        """Handle requests until cancelled."""
        async with asyncio.TaskGroup() as answers:
            while True:
                for path in list_request_files(self.run_dir):
                    if path.name not in self._taken:
                        self._taken.add(path.name)
                        answers.create_task(self._handle_file(path), name=f"request {path.stem}")
                await asyncio.sleep(LOOK_S)

    async def _handle_file(self, path: Path) -> None:
        try:
            request = read_request(path)
        except UserError as error:
            self.events.emit(REQUEST_ANSWERED_EVENT, request=path.stem, action="", ok=False, text=str(error), reason="")
            self._delete_file(path)
            return
        self.events.emit(
            REQUEST_TAKEN_EVENT,
            request=request.id,
            action=request.action.value,
            reason=request.reason,
            by=request.by,
            changes=dict(request.changes),
            target=request.target,
        )
        ok, text = False, _ENDED
        try:
            if request.t < self.run_started_at:
                text = "the request was made to an earlier start of the run, which has ended: repeat it"
            else:
                text = await self.execute(request)
                ok = True
        except LongshoreError as error:
            text = str(error)
        except Exception as error:  # noqa: BLE001  the boundary: a failing request does not end the run
            text = f"{type(error).__name__}: {error}"
        finally:
            self._emit_answer(request, text, ok=ok)

    def _emit_answer(self, request: ControlRequest, text: str, *, ok: bool) -> None:
        self.events.emit(
            REQUEST_ANSWERED_EVENT,
            request=request.id,
            action=request.action.value,
            ok=ok,
            text=text,
            reason=request.reason,
        )
        self._delete_file(self.run_dir / REQUESTS_FOLDER / request.file)

    def _delete_file(self, path: Path) -> None:
        with suppress(OSError):  # a file that stays is not taken a second time
            path.unlink()
            self._taken.discard(path.name)

"""Follows one run with one poller, for any number of readers.

A reader waits at most for the poller's current piece of work, some milliseconds: single trajectories, activity and
recordings are read without the lock.  The run itself never waits.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from threading import Lock
from typing import TypeVar

import orjson

from launch.monitor.api_types import GroupDetail, RunProgress
from launch.monitor.archive import query
from launch.monitor.archive.catalog import RunCatalog
from launch.monitor.archive.query import build_trajectory_row, newest_step
from launch.monitor.archive.token_facts import LocatedTrajectory, ReadContext
from launch.monitor.archive.trajectory_details import read_group_member
from launch.monitor.archive.vocabulary import EMPTY_VOCABULARY, TokenVocabulary, read_vocabulary
from launch.monitor.run_state.event_text import RUN_FLOWS
from launch.monitor.run_state.store import RunStore
from launch.monitor.run_state.view import RunView, encode_run_view, with_status
from protocol.cli.output import display_path
from protocol.run_directory.cursors import Cursor
from protocol.run_directory.json_fields import get_mapping, get_text
from protocol.run_directory.layout import CONFIG_FILE, LINEAGE_FILE, SFT_TABLE, resume_command
from protocol.run_directory.lineage_log import LineageLog
from protocol.run_directory.run_status import RunStatus, read_run_status
from protocol.weights import Lineage

T = TypeVar("T")

_POLL_LINES = 5_000
"""Maximum number of events that one poll reads under the lock."""
_MAX_SAMPLES = 1 << 12
"""Maximum number of samples of a group that are listed as missing; a damaged line may have any size."""
_STATUS_INTERVAL_S = 2.0
"""Seconds between two checks of whether the driver is alive."""


class RunFollower:
    """Follows one run.  Raises NoSuchRunError if ``run_dir`` is not a folder."""

    def __init__(self, run_dir: Path) -> None:
        self.run_dir = run_dir
        self._store, self._catalog, self._lock = RunStore(run_dir), RunCatalog(run_dir), Lock()
        self._inode = run_dir.stat().st_ino
        self._status, self._looked_at = RunStatus.STOPPED, 0.0
        self._lineage, self._lineage_bytes = Lineage(), -1
        self._vocabulary = EMPTY_VOCABULARY
        self.revision = 0
        """Changes whenever a response may have changed."""
        self.is_gone = False
        """Whether the directory was removed or replaced, which ends the following."""

    @property
    def name(self) -> str:
        return self.run_dir.resolve().name

    def poll(self) -> bool:
        """Read what is new, or a part of it, and return whether there may be more."""
        with self._lock:
            if self._is_gone():
                return False
            before = self._status
            listed = self._catalog.poll()
            taken = self._store.poll(_POLL_LINES)
            self._refresh_status()
            self._catalog.set_ended(self._store.state.header.ok is True)
            if listed or taken or before is not self._status:
                self.revision += 1
            return listed or taken > 0

    def load_initial(self) -> None:
        """Read everything that lists need, and the newest events, so that the first response is complete."""
        while not self.is_gone:
            with self._lock:
                if self._is_gone() or not self._catalog.poll():
                    break
        self.poll()

    def _is_gone(self) -> bool:
        try:
            there = self.run_dir.stat().st_ino == self._inode
        except OSError:
            there = False
        if not there and not self.is_gone:
            self.is_gone = True
            self.revision += 1
        return self.is_gone

    def _refresh_status(self) -> None:
        if time.monotonic() - self._looked_at > _STATUS_INTERVAL_S:
            self._status, self._looked_at = read_run_status(self.run_dir, look_only=True), time.monotonic()

    # -- queries ---------------------------------------------------------------------------------------------------

    def query_catalog(self, query_: Callable[[RunCatalog], T]) -> T:
        """Return the result of a query on the catalog."""
        with self._lock:
            return query_(self._catalog)

    @property
    def cursor(self) -> Cursor:
        """Position up to which events are read; event streams never go beyond it."""
        with self._lock:
            return self._store.cursor

    @property
    def live_recordings(self) -> frozenset[str]:
        """Names of the recordings that are still being written."""
        with self._lock:
            return self._live_recordings

    @property
    def _live_recordings(self) -> frozenset[str]:
        return frozenset(self._store.state.running) if self._is_running else frozenset()

    @property
    def _is_running(self) -> bool:
        return self._status is RunStatus.RUNNING

    def view(self) -> RunView:
        with self._lock:
            return with_status(self._store.view(), self._status)

    def encode_view(self) -> bytes:
        """Return the view as the response of ``/state``."""
        return encode_run_view(self.view())

    def head(self) -> RunProgress:
        """Return the progress of the run."""
        with self._lock:
            state, catalog = self._store.state, self._catalog
            last = state.curve.last
            values = last.values if last else {}
            requested = self._is_running and state.header.flow != "run"
            return RunProgress(
                run=self.name,
                revision=self.revision,
                status=self._status,
                phase=state.phases[-1].name if state.phases else "",
                step=newest_step(catalog) or 0,
                steps=state.header.steps,
                running=len(state.running) if self._is_running else 0,
                trajectories=catalog.trajectories.count,
                groups=len(catalog.groups),
                reward_mean=values.get("reward_mean"),
                pass_rate=values.get("pass_rate"),
                last_event_at=state.last_event_at,
                behind_bytes=self._store.behind_bytes + catalog.unread_bytes,
                problem=self._problem(),
                flow=RUN_FLOWS.get(state.header.flow, "") if requested else "",
                directory=str(display_path(self.run_dir)),
                resume_command=self._resume_command(),
            )

    def _resume_command(self) -> str:
        if self.is_gone or self._status is not RunStatus.STOPPED:
            return ""
        record = self._store.read_json_object(CONFIG_FILE) or {}
        return resume_command(self.run_dir, supervised=SFT_TABLE in get_mapping(record, "config"))

    def _problem(self) -> str:
        if self.is_gone:
            return f"{self.run_dir} was removed while this monitor watched it"
        if lost := self._catalog.damaged_lines + self._catalog.steps.damaged:
            return f"{lost} lines of this run's files are damaged and were left out"
        return ""

    def locate(self, trajectory: str) -> LocatedTrajectory | None:
        """Return an acknowledged trajectory; None for any other."""
        with self._lock:
            row = self._catalog.trajectories.find_row(trajectory)
            return None if row is None else _located(self._catalog, row)

    def members(self, group: int) -> list[LocatedTrajectory]:
        """Return the members of a group, by sample."""
        with self._lock:
            return [_located(self._catalog, row) for row in self._catalog.group_rows(group)]

    def group(self, number: int) -> GroupDetail | None:
        """Return a group with its members; None where there is no such group."""
        row = self.query_catalog(lambda catalog: query.find_group(catalog, number))
        if row is None:
            return None
        known = self.read_context()
        members = [read_group_member(known, where) for where in self.members(number)]
        here = {each.row.sample for each in members}
        return GroupDetail(
            row, members, [sample for sample in range(min(row.size, _MAX_SAMPLES)) if sample not in here]
        )

    def read_context(self) -> ReadContext:
        """Return the facts that reading a trajectory needs."""
        with self._lock:
            bound, live = self._store.state.header.max_staleness, self._live_recordings
        lineage, vocabulary = self._read_lineage(), self._read_vocabulary()
        return ReadContext(self.run_dir, lineage, vocabulary, bound, live)

    def _read_lineage(self) -> Lineage:
        """Return the lineage, which is read again when the file has grown and readable."""
        try:
            size = (self.run_dir / LINEAGE_FILE).stat().st_size
            if size != self._lineage_bytes:
                self._lineage, self._lineage_bytes = LineageLog(self.run_dir).read(), size
        except (OSError, KeyError, TypeError):
            pass
        return self._lineage

    def _read_vocabulary(self) -> TokenVocabulary:
        if self._vocabulary is EMPTY_VOCABULARY:  # the model may not be prepared yet
            config = get_mapping(self._store.read_json_object(CONFIG_FILE) or {}, "config")
            model = get_text(get_mapping(config, "model"), "path")
            weights = sorted((self.run_dir / "weights").glob("v*"))[-1:]
            folders = [self.run_dir / "model", *([Path(model)] if model else []), *weights]
            self._vocabulary = read_vocabulary(folders)
        return self._vocabulary

    def read_object(self, name: str) -> bytes | None:
        """Return ``config.json`` or ``summary.json`` as JSON; None while it is absent or damaged."""
        value = self._store.read_json_object(name)
        return None if value is None else orjson.dumps(value)


def _located(catalog: RunCatalog, row: int) -> LocatedTrajectory:
    found = build_trajectory_row(catalog, row)
    return LocatedTrajectory(
        found,
        catalog.trajectories.export_entry(row),
        catalog.trajectories.trained_entry(row),
        catalog.trajectories.integer_at("version", row),
    )

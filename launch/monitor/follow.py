"""One run as the server has it: followed by one poller, asked by any number of readers.

Whoever asks waits for the poller's present piece of work, some milliseconds, and for nothing else: what takes reading
(one trajectory's record, lanes, a recording) is read without the lock.  The run itself never waits for any of it.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from threading import Lock
from typing import TypeVar

import orjson

from launch.lineage import LineageLog
from launch.monitor.archive import query
from launch.monitor.archive.cards import standing
from launch.monitor.archive.catalog import Catalog
from launch.monitor.archive.details import member
from launch.monitor.archive.query import last_step, trajectory_row
from launch.monitor.archive.reading import Known, Located
from launch.monitor.archive.vocabulary import NONE, Vocabulary, read_vocabulary
from launch.monitor.describe import FLOWS
from launch.monitor.shapes import GroupDetail, Head, RunStanding
from launch.monitor.store import RunStore
from launch.monitor.tail import Cursor, mapping, text
from launch.monitor.view import RunView, as_json, at_rest
from launch.run_files import CONFIG_FILE, SFT_TABLE, resume_command
from protocol.cli.output import shown
from protocol.weights import Lineage

T = TypeVar("T")

_LINES = 5_000
"""Of events, that are taken in while others wait."""
_MOST = 1 << 12
"""Samples of a group that are named as missing; a damaged line may say any size."""
_STANDING_S = 2.0
"""For so long it is not looked again whether the driver lives."""


class Follower:
    """See the module.  Raises NoSuchRunError where ``run_dir`` is no folder."""

    def __init__(self, run_dir: Path) -> None:
        self.run_dir = run_dir
        self._store, self._catalog, self._lock = RunStore(run_dir), Catalog(run_dir), Lock()
        self._inode = run_dir.stat().st_ino
        self._standing, self._looked_at = RunStanding.STOPPED, 0.0
        self._lineage, self._lineage_bytes = Lineage(), -1
        self._vocabulary = NONE
        self.revision = 0
        """Changes whenever anything may have."""
        self.gone = False
        """Its directory was removed, or is another one: nothing is followed any more."""

    @property
    def name(self) -> str:
        return self.run_dir.resolve().name

    def poll(self) -> bool:
        """Take in what is new, or a piece of it; whether there may be more."""
        with self._lock:
            if self._is_gone():
                return False
            before = self._standing
            listed = self._catalog.poll()
            taken = self._store.poll(_LINES)
            self._look()
            self._catalog.set_ended(self._store.state.header.ok is True)
            if listed or taken or before is not self._standing:
                self.revision += 1
            return listed or taken > 0

    def begin(self) -> None:
        """Take in all that lists are made of, and the newest events: before it is asked for the first time, so that no
        list is half there and no run looks empty."""
        while not self.gone:
            with self._lock:
                if self._is_gone() or not self._catalog.poll():
                    break
        self.poll()

    def _is_gone(self) -> bool:
        try:
            there = self.run_dir.stat().st_ino == self._inode
        except OSError:
            there = False
        if not there and not self.gone:
            self.gone = True
            self.revision += 1
        return self.gone

    def _look(self) -> None:
        if time.monotonic() - self._looked_at > _STANDING_S:
            self._standing, self._looked_at = standing(self.run_dir), time.monotonic()

    # -- what is asked ---------------------------------------------------------------------------------------------

    def ask(self, question: Callable[[Catalog], T]) -> T:
        """An answer from the catalog."""
        with self._lock:
            return question(self._catalog)

    @property
    def cursor(self) -> Cursor:
        """Up to where events are taken in: what a stream tells, lists know."""
        with self._lock:
            return self._store.cursor

    @property
    def live(self) -> frozenset[str]:
        """Recordings that are being made."""
        with self._lock:
            return self._live

    @property
    def _live(self) -> frozenset[str]:
        return frozenset(self._store.state.running) if self._is_running else frozenset()

    @property
    def _is_running(self) -> bool:
        return self._standing is RunStanding.RUNNING

    def view(self) -> RunView:
        with self._lock:
            view = self._store.view()
            return view if self._is_running else at_rest(view)

    def view_json(self) -> bytes:
        """The state, as ``/state`` answers it."""
        return as_json(self.view())

    def head(self) -> Head:
        with self._lock:
            state, catalog = self._store.state, self._catalog
            last = state.curve.last
            values = last.values if last else {}
            asked = self._is_running and state.header.flow != "run"
            return Head(
                run=self.name,
                revision=self.revision,
                standing=self._standing,
                phase=state.phases[-1].name if state.phases else "",
                step=last_step(catalog) or 0,
                steps=state.header.steps,
                running=len(state.running) if self._is_running else 0,
                trajectories=catalog.rows.count,
                groups=len(catalog.groups),
                reward_mean=values.get("reward_mean"),
                pass_rate=values.get("pass_rate"),
                last_event_at=state.last_event_at,
                behind_bytes=self._store.behind_bytes + catalog.behind,
                problem=self._problem(),
                flow=FLOWS.get(state.header.flow, "") if asked else "",
                directory=str(shown(self.run_dir)),
                go_on=self._go_on(),
            )

    def _go_on(self) -> str:
        if self.gone or self._standing is not RunStanding.STOPPED:
            return ""
        record = self._store.read_object(CONFIG_FILE) or {}
        return resume_command(self.run_dir, supervised=SFT_TABLE in mapping(record, "config"))

    def _problem(self) -> str:
        if self.gone:
            return f"{self.run_dir} is gone: it was removed while this monitor watched it"
        if lost := self._catalog.damaged + self._catalog.steps.damaged:
            return f"{lost} lines of this run's files are damaged and were left out"
        return ""

    def locate(self, trajectory: str) -> Located | None:
        """A trajectory that was acknowledged; None for any other."""
        with self._lock:
            row = self._catalog.rows.find(trajectory)
            return None if row is None else _located(self._catalog, row)

    def members(self, group: int) -> list[Located]:
        """Of a group, by sample."""
        with self._lock:
            return [_located(self._catalog, row) for row in self._catalog.members(group)]

    def group(self, number: int) -> GroupDetail | None:
        """Its members side by side; None where there is no such group."""
        row = self.ask(lambda catalog: query.group(catalog, number))
        if row is None:
            return None
        known = self.known()
        members = [member(known, where) for where in self.members(number)]
        here = {each.row.sample for each in members}
        return GroupDetail(row, members, [sample for sample in range(min(row.size, _MOST)) if sample not in here])

    def known(self) -> Known:
        """What details are read with."""
        with self._lock:
            bound, live = self._store.state.header.age_bound, self._live
        lineage, vocabulary = self._read_lineage(), self._read_vocabulary()
        return Known(self.run_dir, lineage, vocabulary, bound, live)

    def _read_lineage(self) -> Lineage:
        """Again whenever the file has grown; one that cannot be read leaves what was known."""
        try:
            size = (self.run_dir / "lineage.jsonl").stat().st_size
            if size != self._lineage_bytes:
                self._lineage, self._lineage_bytes = LineageLog(self.run_dir).read(), size
        except (OSError, KeyError, TypeError):
            pass
        return self._lineage

    def _read_vocabulary(self) -> Vocabulary:
        if self._vocabulary is NONE:  # the model may be yet to come
            config = mapping(self._store.read_object(CONFIG_FILE) or {}, "config")
            model = text(mapping(config, "model"), "path")
            weights = sorted((self.run_dir / "weights").glob("v*"))[-1:]
            folders = [self.run_dir / "model", *([Path(model)] if model else []), *weights]
            self._vocabulary = read_vocabulary(folders)
        return self._vocabulary

    def read_object(self, name: str) -> bytes | None:
        """``config.json`` or ``summary.json`` as JSON; None while there is none."""
        value = self._store.read_object(name)
        return None if value is None else orjson.dumps(value)


def _located(catalog: Catalog, row: int) -> Located:
    found = trajectory_row(catalog, row)
    return Located(found, catalog.rows.entry(row), catalog.rows.used(row), catalog.rows.whole("version", row))

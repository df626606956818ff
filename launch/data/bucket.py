"""Fetches SWE-SYNTH's bugs from the bucket in which its environment keeps them, by number, into a file of rows.

The object of bug N is ``URL/task_%011d.json``.  Rows are written in the order of the numbers, each whole, so that a
fetch that was broken off goes on where it stopped.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple, TypeGuard

import aiohttp
import orjson

from protocol.errors import UserError
from protocol.files.filesystem import append_atomically, cut_torn_line
from protocol.processes.task_groups import task_group

MAX_BUGS = 1_000_000
_TRIES, _PAUSE_S = 3, 0.5
_TIMEOUT = aiohttp.ClientTimeout(total=120.0, sock_connect=10.0)
_RANGE = re.compile(r"(\d{1,11})(?:-(\d{1,11}))?")
_ROW_BEGINS = b'{"task_id":'
_BUSY = frozenset({429, 500, 502, 503, 504})


class FetchedBugs(NamedTuple):
    written: int
    kept: int
    """Bugs that the file had already."""
    missing: tuple[int, ...]
    """Numbers of which the bucket has no bug."""
    damaged: tuple[str, ...]
    """A sentence for each object that is no bug: where it is, and what is wrong with it."""


class _Damaged(NamedTuple):
    """An object that is no bug."""

    what: str
    """A sentence: where it is, and what is wrong with it."""


def parse_numbers(entries: Sequence[str]) -> list[int]:
    """Return the numbers that ``7`` and ``1-100`` name, sorted, each once.  Raises UserError."""
    numbers = set[int]()
    for entry in entries:
        found = _RANGE.fullmatch(entry)
        first, last = (int(found[1]), int(found[2] or found[1])) if found else (1, 0)
        if first > last:
            raise UserError(f"--ids {entry}: write numbers and ranges of them, for example 1-100,205")
        if last - first >= MAX_BUGS:
            raise UserError(f"--ids {entry} is more than {MAX_BUGS:,} bugs: fetch fewer at a time")
        numbers.update(range(first, last + 1))
    return sorted(numbers)


async def fetch_bugs(
    url: str, numbers: Sequence[int], output: Path, at_once: int, on_progress: Callable[[int], None] = lambda _: None
) -> FetchedBugs:
    """Append the bugs that ``output`` does not have to it; ``on_progress`` gets how many numbers are done.

    An object that is no bug is left out.  Raises UserError if the bucket does not answer, has only something else, or
    the file cannot be written."""
    had = _numbers_in(output)
    wanted, written = [number for number in numbers if number not in had], 0
    missing, damaged = list[int](), list[str]()
    async with aiohttp.ClientSession(timeout=_TIMEOUT, trust_env=True) as session:
        for start in range(0, len(wanted), at_once):
            batch = wanted[start : start + at_once]
            async with task_group() as group:
                tasks = [group.create_task(_fetch(session, url, number)) for number in batch]
            rows = [task.result() for task in tasks]
            missing += [number for number, row in zip(batch, rows, strict=True) if row is None]
            damaged += [row.what for row in rows if isinstance(row, _Damaged)]
            lines = [orjson.dumps(row) + b"\n" for row in rows if isinstance(row, dict)]
            if damaged and not (lines or written or had):
                raise UserError(f"{damaged[0]}: is this the URL of a bucket of SWE-SYNTH's bugs?")
            _append(output, b"".join(lines))
            written += len(lines)
            on_progress(start + len(batch))
    return FetchedBugs(written, len(numbers) - len(wanted), tuple(missing), tuple(damaged))


async def _fetch(session: aiohttp.ClientSession, url: str, number: int) -> dict[str, object] | _Damaged | None:
    """Return a bug's row with its number, or what else is there; None for nothing.  Raises UserError."""
    where, why = f"{url.rstrip('/')}/task_{number:011d}.json", ""
    for left in range(_TRIES, 0, -1):
        try:
            async with session.get(where) as reply:
                if reply.status == 404:
                    return None
                if reply.ok:
                    return _row(await reply.read(), number, where)
                why = f"{reply.status} {reply.reason}"
                if reply.status not in _BUSY:
                    break
        except (aiohttp.ClientError, TimeoutError) as error:
            why = str(error) or type(error).__name__
        if left > 1:
            await asyncio.sleep(_PAUSE_S)
    raise UserError(f"{where} cannot be fetched ({why}): see the URL; the same command goes on where this one stopped")


def _row(data: bytes, number: int, where: str) -> dict[str, object] | _Damaged:
    try:
        bug: object = orjson.loads(data)
    except orjson.JSONDecodeError as error:
        return _Damaged(f"{where} is not JSON ({error})")
    if not _is_bug(bug):
        return _Damaged(f"{where} is no bug, which has 'source', 'original' and 'bug'")
    return {"task_id": number} | bug | {"task_id": number}


def _is_bug(value: object) -> TypeGuard[dict[str, object]]:
    return isinstance(value, dict) and "source" in value and "bug" in value


def _numbers_in(file: Path) -> set[int]:
    """Return the numbers of the bugs in a file, which may be missing, and cut what is left of a row at its end.

    Raises UserError for another file, which stays as it is."""
    try:
        *lines, last = file.read_bytes().split(b"\n")
        found = {_number_of(line, f"{file}:{at}") for at, line in enumerate(lines, 1) if line.strip()}
        if last and _ROW_BEGINS.startswith(last[: len(_ROW_BEGINS)]) and _read_json(last) is None:
            cut_torn_line(file)
        elif last:
            found.add(_number_of(last, f"{file}:{len(lines) + 1}"))
            append_atomically(file, b"\n")
    except FileNotFoundError:
        return set()
    except OSError as error:
        raise _unusable(file, error) from error
    return found


def _number_of(line: bytes, location: str) -> int:
    row = _read_json(line)
    number = row.get("task_id") if _is_bug(row) else None
    if type(number) is not int:
        raise UserError(f"{location} is no fetched bug: choose another --output, or remove the file")
    return number


def _read_json(line: bytes) -> object:
    """Return the value of a line; None if it is no JSON."""
    try:
        return orjson.loads(line)
    except orjson.JSONDecodeError:
        return None


def _append(file: Path, data: bytes) -> None:
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        if data:
            append_atomically(file, data)
    except OSError as error:
        raise _unusable(file, error) from error


def _unusable(file: Path, error: OSError) -> UserError:
    return UserError(f"cannot read and write {file}: {error.strerror}; choose another path, --output FILE")

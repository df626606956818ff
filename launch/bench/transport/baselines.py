"""The alternatives without a socket: a Ray queue, Ray's object store, and SQLite."""

from __future__ import annotations

import sqlite3
import time
from contextlib import closing
from pathlib import Path
from typing import Any

from launch.bench.transport.receivers import TransportRate
from launch.bench.transport.workload import build_frames
from protocol.journal.store import PAGE_BYTES, wal_bytes

ROWS_PER_TRANSACTION = (1, 8, 64)
"""Numbers of rows per transaction, of which the best counts."""
_QUEUE_ITEMS = 64
_REFS_AT_ONCE = 8


class _Producer:
    """The sending process."""

    def __init__(self, tokens: int) -> None:
        self._blob = b"".join(build_frames(tokens))

    def fill(self, queue: Any) -> None:
        """Put the trajectory by value, forever."""
        while True:
            queue.put(self._blob)

    def put(self, number: int) -> list[Any]:
        """Return references to ``number`` copies in the object store."""
        return [_ray().put(self._blob) for _ in range(number)]


def measure_ray_queue(tokens: int, seconds: float) -> TransportRate:
    """Measure ``ray.util.queue.Queue`` from one process to another through the queue's actor."""
    from ray.util.queue import Queue

    ray = _ray()
    producer = ray.remote(_Producer).remote(tokens)
    queue: Any = Queue(maxsize=_QUEUE_ITEMS)
    try:
        producer.fill.remote(queue)
        queue.get()
        begun, counted = time.perf_counter(), 0
        while time.perf_counter() - begun < seconds:
            queue.get()
            counted += 1
        return TransportRate(counted / (time.perf_counter() - begun))
    finally:
        ray.kill(producer)
        queue.shutdown(force=True)


def measure_ray_object_store(tokens: int, seconds: float) -> TransportRate:
    """Measure ``ray.put`` in one process and ``ray.get`` in another; references are passed a few at a time, and the
    next ones are created meanwhile.
    """
    ray = _ray()
    producer = ray.remote(_Producer).remote(tokens)
    try:
        ray.get(ray.get(producer.put.remote(1)))
        begun, counted = time.perf_counter(), 0
        ahead = producer.put.remote(_REFS_AT_ONCE)
        while time.perf_counter() - begun < seconds:
            references = ray.get(ahead)
            ahead = producer.put.remote(_REFS_AT_ONCE)
            for reference in references:
                ray.get(reference)
                counted += 1
        return TransportRate(counted / (time.perf_counter() - begun))
    finally:
        ray.kill(producer)


def _ray() -> Any:
    """Return the untyped module, imported only when it is needed."""
    import ray

    return ray


def measure_raw_sqlite(tokens: int, seconds: float, folder: Path) -> TransportRate:
    """Measure one table of blobs with ``synchronous=FULL`` and the journal's page and log sizes; the best of
    :data:`ROWS_PER_TRANSACTION`."""
    blob = b"".join(build_frames(tokens))
    return max(_sqlite(blob, rows, seconds, folder / f"{rows}.sqlite") for rows in ROWS_PER_TRANSACTION)


def _sqlite(blob: bytes, rows: int, seconds: float, path: Path) -> TransportRate:
    with closing(sqlite3.connect(path, isolation_level=None)) as database:
        for pragma in (
            f"page_size={PAGE_BYTES}",
            "locking_mode=EXCLUSIVE",
            "journal_mode=WAL",
            "synchronous=FULL",
            f"wal_autocheckpoint={wal_bytes(1 << 50) // PAGE_BYTES}",
        ):
            database.execute(f"PRAGMA {pragma}")
        database.execute("CREATE TABLE payloads (trajectory TEXT PRIMARY KEY, blob BLOB NOT NULL)")
        begun, counted = time.perf_counter(), 0
        while time.perf_counter() - begun < seconds:
            database.execute("BEGIN IMMEDIATE")
            for _ in range(rows):
                database.execute("INSERT INTO payloads VALUES (?, ?)", (f"train-g{counted:08d}", blob))
                counted += 1
            database.execute("COMMIT")
        elapsed = time.perf_counter() - begun
    path.unlink()
    return TransportRate(counted / elapsed)

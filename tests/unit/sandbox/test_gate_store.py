"""Two workers that fetch one package at once give their sandboxes a broken one, for ever, when this fails."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

from sandbox import owner
from sandbox.gate.store import Entry, FileStore, Head

KEY, HEAD, LONG_S = "https://files.example/a.whl", Head(200, (("etag", "1"),)), 1e9
DEAD = owner.of_process(os.getpid()).rsplit("/", 1)[0].replace("/", "_") + "_0"
"""A process that had this one's number, and started at another time."""


async def chunks(*data: bytes, until: asyncio.Event | None = None) -> AsyncGenerator[bytes]:
    for each in data[:-1]:
        yield each
    if until is not None:
        await until.wait()
    yield data[-1]


async def everything(entry: Entry | None) -> bytes:
    assert entry is not None
    return b"".join([each async for each in entry.read()])


async def fill(store: FileStore, *data: bytes, head: Head = HEAD) -> None:
    await store.fill(KEY, store.begin(KEY, head, LONG_S), chunks(*data))


def left(folder: Path, kind: str) -> int:
    return len(list(folder.glob(f"*.{kind}")))


async def test_two_processes_that_fetch_the_same_file_keep_one_whole_one(tmp_path: Path):
    one, other = FileStore(tmp_path, 1 << 20), FileStore(tmp_path, 1 << 20)
    go_on = asyncio.Event()
    entries = [each.begin(KEY, HEAD, LONG_S) for each in (one, other)]
    async with asyncio.TaskGroup() as group:
        for store, entry in zip((one, other), entries, strict=True):
            group.create_task(store.fill(KEY, entry, chunks(b"the ", b"file", until=go_on)))
        readers = [group.create_task(everything(entry)) for entry in entries]
        go_on.set()
    assert [each.result() for each in readers] == [b"the file", b"the file"]
    for store in (one, other, FileStore(tmp_path, 1 << 20)):
        assert await everything(store.find(KEY)) == b"the file"
    assert (left(tmp_path, "body"), left(tmp_path, "json"), left(tmp_path, "part")) == (1, 1, 0)


async def test_a_store_that_opens_leaves_what_a_living_process_writes(tmp_path: Path):
    store, go_on = FileStore(tmp_path, 1 << 20), asyncio.Event()
    entry = store.begin(KEY, HEAD, LONG_S)
    async with asyncio.TaskGroup() as group:
        group.create_task(store.fill(KEY, entry, chunks(b"the ", b"file", until=go_on)))
        FileStore(tmp_path, 1 << 20)
        go_on.set()
    assert await everything(store.find(KEY)) == b"the file"


@pytest.mark.parametrize(
    ("name", "age_s", "stays"),
    [
        (f"d.t.{DEAD}.part", 0.0, False),
        ("d.t.another-boot_1_2_3.part", 3600.0, True),
        ("d.t.another-boot_1_2_3.part", 2 * 86400.0, False),
        ("d.part", 0.0, True),
        ("d.part", 2 * 86400.0, False),
    ],
)
def test_what_a_dead_process_left_behind_is_removed(tmp_path: Path, name: str, age_s: float, stays: bool):
    part = tmp_path / name
    part.write_bytes(b"half")
    FileStore(tmp_path, 1 << 20, now=lambda: part.stat().st_mtime + age_s)
    assert part.exists() is stays


async def test_a_fetch_that_breaks_off_leaves_nothing_and_the_file_before_it_stays(tmp_path: Path):
    store = FileStore(tmp_path, 1 << 20)
    await fill(store, b"whole")

    async def broken() -> AsyncGenerator[bytes]:
        yield b"ha"
        raise OSError("cut")

    with pytest.raises(OSError, match="cut"):
        await store.fill(KEY, store.begin(KEY, HEAD, LONG_S), broken())
    assert await everything(store.find(KEY)) == b"whole"
    assert left(tmp_path, "part") == 0


async def test_a_file_that_somebody_else_wrote_to_is_not_kept(tmp_path: Path):
    store = FileStore(tmp_path, 1 << 20)
    entry = store.begin(KEY, HEAD, LONG_S)
    entry.path.write_bytes(b"strange")
    with pytest.raises(OSError, match="bytes, and 4 were written"):
        await store.fill(KEY, entry, chunks(b"file"))
    assert store.find(KEY) is None
    assert left(tmp_path, "body") == left(tmp_path, "part") == 0


async def test_a_reader_never_gets_another_version_s_bytes_with_its_head(tmp_path: Path):
    one, other = FileStore(tmp_path, 1 << 20), FileStore(tmp_path, 1 << 20)
    await fill(one, b"old")
    found = one.find(KEY)
    assert found is not None
    reading = found.read()
    assert await anext(reading) == b"old"
    await fill(other, b"a newer one", head=Head(200, (("etag", "2"),)))
    assert [each async for each in reading] == []
    newer = one.find(KEY)
    assert newer is not None
    assert (newer.head.headers, await everything(newer)) == ((("etag", "2"),), b"a newer one")
    assert left(tmp_path, "body") == 1


async def test_the_least_recently_read_goes_first_also_when_others_remove_files_too(tmp_path: Path):
    store = FileStore(tmp_path, 10)
    for number, key in enumerate("abc"):
        await store.fill(key, store.begin(key, HEAD, LONG_S), chunks(b"12345"))
        entry = store.find(key)
        if entry is not None:
            os.utime(entry.path, (number, number))
    assert [store.find(key) is not None for key in "abc"] == [False, True, True]
    entry = store.find("b")
    assert entry is not None
    entry.path.unlink()
    assert store.find("b") is None

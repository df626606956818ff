"""If these fail, sandboxes keep getting a broken package, or an agent fills the machine's disk."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

from sandbox.docker import owner
from sandbox.egress_proxy.cached_file import CachedFile, FetchFailedError, ResponseHead
from sandbox.egress_proxy.file_cache import FileCache

KEY, LONG_S = "https://files.example/a.whl", 1e9
HEAD = ResponseHead(200, (("etag", "1"), ("Content-Length", "8")))
ENDLESS = ResponseHead(200, (("etag", "1"),))
KIB = 1 << 10
DEAD = owner.owner_of_process(os.getpid()).rsplit("/", 1)[0].replace("/", "_") + "_0"
"""Owner of a dead process with this one's PID and another start time."""


class Held(asyncio.Event):
    """Holds back the rest of a file until it is set; ``reached`` is set once everything before has been read."""

    def __init__(self) -> None:
        super().__init__()
        self.reached = asyncio.Event()


async def chunks(*data: bytes, until: Held | None = None) -> AsyncGenerator[bytes]:
    for each in data[:-1]:
        yield each
    if until is not None:
        until.reached.set()
        await until.wait()
    yield data[-1]


async def everything(entry: CachedFile | None) -> bytes:
    assert entry is not None
    async with entry.open_reader() as body:
        return b"".join([each async for each in body])


async def fill(store: FileCache, *data: bytes, head: ResponseHead = HEAD) -> None:
    await store.fill(KEY, store.begin(KEY, head, LONG_S), chunks(*data))


def count_files(folder: Path, kind: str) -> int:
    return len(list(folder.glob(f"*.{kind}")))


def on_disk(folder: Path) -> int:
    """Return the bytes on disk."""
    return sum(each.stat().st_size for each in folder.iterdir())


class SlowDownload:
    """Yields pieces until it is told to stop, and measures the disk before each."""

    def __init__(self, folder: Path, pieces: int) -> None:
        self._folder, self.remaining, self.most_on_disk = folder, pieces, 0

    async def chunks(self) -> AsyncGenerator[bytes]:
        while self.remaining:
            self.most_on_disk = max(self.most_on_disk, on_disk(self._folder))
            self.remaining -= 1
            yield bytes([self.remaining % 256]) * KIB


async def test_two_processes_that_fetch_the_same_file_keep_one_complete_copy(tmp_path: Path):
    one, other = FileCache(tmp_path, 1 << 20), FileCache(tmp_path, 1 << 20)
    go_on = Held()
    entries = [each.begin(KEY, HEAD, LONG_S) for each in (one, other)]
    async with asyncio.TaskGroup() as group:
        for store, entry in zip((one, other), entries, strict=True):
            group.create_task(store.fill(KEY, entry, chunks(b"the ", b"file", until=go_on)))
        readers = [group.create_task(everything(entry)) for entry in entries]
        go_on.set()
    assert [each.result() for each in readers] == [b"the file", b"the file"]
    for store in (one, other, FileCache(tmp_path, 1 << 20)):
        assert await everything(store.find(KEY)) == b"the file"
    assert (count_files(tmp_path, "body"), count_files(tmp_path, "json"), count_files(tmp_path, "part")) == (1, 1, 0)


async def test_opening_a_store_keeps_files_that_a_living_process_writes(tmp_path: Path):
    store, go_on = FileCache(tmp_path, 1 << 20), Held()
    entry = store.begin(KEY, HEAD, LONG_S)
    async with asyncio.TaskGroup() as group:
        group.create_task(store.fill(KEY, entry, chunks(b"the ", b"file", until=go_on)))
        FileCache(tmp_path, 1 << 20)
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
    ids=["dead process", "other boot", "other boot, old", "no owner", "no owner, old"],
)
def test_leftovers_of_a_dead_process_are_removed(tmp_path: Path, name: str, age_s: float, stays: bool):
    part = tmp_path / name
    part.write_bytes(b"half")
    FileCache(tmp_path, 1 << 20, now=lambda: part.stat().st_mtime + age_s)
    assert part.exists() is stays


async def test_an_interrupted_fetch_leaves_no_file_and_keeps_the_previous_one(tmp_path: Path):
    store = FileCache(tmp_path, 1 << 20)
    await fill(store, b"whole")

    async def broken() -> AsyncGenerator[bytes]:
        yield b"ha"
        raise OSError("cut")

    with pytest.raises(OSError, match="cut"):
        await store.fill(KEY, store.begin(KEY, HEAD, LONG_S), broken())
    assert await everything(store.find(KEY)) == b"whole"
    assert count_files(tmp_path, "part") == 0


async def test_a_file_changed_by_another_writer_is_not_kept(tmp_path: Path):
    store = FileCache(tmp_path, 1 << 20)
    entry = store.begin(KEY, HEAD, LONG_S)
    entry.path.write_bytes(b"strange")
    with pytest.raises(OSError, match="bytes, but 4 were written"):
        await store.fill(KEY, entry, chunks(b"file"))
    assert store.find(KEY) is None
    assert count_files(tmp_path, "body") == count_files(tmp_path, "part") == 0


async def test_a_reader_never_gets_the_bytes_of_another_version(tmp_path: Path):
    one, other = FileCache(tmp_path, 1 << 20), FileCache(tmp_path, 1 << 20)
    await fill(one, b"old")
    found = one.find(KEY)
    assert found is not None
    second = ResponseHead(200, (("etag", "2"), ("Content-Length", "11")))
    async with found.open_reader() as body:
        assert await anext(body) == b"old"
        await fill(other, b"a newer one", head=second)
        assert [each async for each in body] == []
    newer = one.find(KEY)
    assert newer is not None
    assert (newer.head, await everything(newer)) == (second, b"a newer one")
    assert count_files(tmp_path, "body") == 1


async def test_the_least_recently_read_goes_first_also_when_others_remove_files_too(tmp_path: Path):
    store = FileCache(tmp_path, 3 * KIB)
    for number, key in enumerate("abc"):
        await store.fill(key, store.begin(key, HEAD, LONG_S), chunks(b"x" * KIB))
        entry = store.find(key)
        if entry is not None:
            os.utime(entry.path, (number, number))
    assert [store.find(key) is not None for key in "abc"] == [False, True, True]
    entry = store.find("b")
    assert entry is not None
    entry.path.unlink()
    assert store.find("b") is None


@pytest.mark.parametrize("most_bytes", [0, 16 * KIB])
async def test_an_endless_file_reaches_its_readers_completely_and_the_disk_partly(tmp_path: Path, most_bytes: int):
    store, source = FileCache(tmp_path, most_bytes), SlowDownload(tmp_path, 64)
    entry = store.begin(KEY, ENDLESS, LONG_S)
    async with asyncio.TaskGroup() as group:
        readers = [group.create_task(everything(entry)) for _ in range(3)]
        await asyncio.sleep(0)
        group.create_task(store.fill(KEY, entry, source.chunks()))
    whole = b"".join(bytes([number]) * KIB for number in reversed(range(64)))
    assert all(each.result() == whole for each in readers)
    assert source.most_on_disk <= most_bytes // 2
    assert store.find(KEY) is None
    assert on_disk(tmp_path) == count_files(tmp_path, "part") == 0


async def test_a_request_for_a_file_that_is_not_kept_starts_a_separate_fetch(tmp_path: Path):
    store, go_on = FileCache(tmp_path, 2 * KIB), Held()
    entry = store.begin(KEY, ENDLESS, LONG_S)
    async with asyncio.TaskGroup() as group:
        reader = group.create_task(everything(entry))
        await asyncio.sleep(0)
        group.create_task(store.fill(KEY, entry, chunks(b"a" * KIB, b"b", b"c", until=go_on)))
        await go_on.reached.wait()
        other = store.begin(KEY, HEAD, LONG_S)
        go_on.set()
        await reader
        assert store.find(KEY) is other
    assert reader.result() == b"a" * KIB + b"bc"


@pytest.mark.parametrize("head", [ENDLESS, ResponseHead(200, (("content-length", str(9 * KIB)),))])
async def test_an_unread_file_that_may_not_be_kept_is_not_fetched_further(tmp_path: Path, head: ResponseHead):
    store, source = FileCache(tmp_path, 16 * KIB), SlowDownload(tmp_path, 64)
    with pytest.raises(FetchFailedError):
        await store.fill(KEY, store.begin(KEY, head, LONG_S), source.chunks())
    assert source.remaining == 63
    assert on_disk(tmp_path) == count_files(tmp_path, "part") == 0


async def test_an_unread_file_larger_than_declared_is_abandoned(tmp_path: Path):
    store, source = FileCache(tmp_path, 16 * KIB), SlowDownload(tmp_path, 64)
    with pytest.raises(FetchFailedError):
        await store.fill(KEY, store.begin(KEY, HEAD, LONG_S), source.chunks())
    assert source.most_on_disk <= 8 * KIB


async def test_the_last_reader_to_leave_ends_a_fetch_that_is_not_kept(tmp_path: Path):
    store, source = FileCache(tmp_path, 2 * KIB), SlowDownload(tmp_path, 64)
    entry = store.begin(KEY, ENDLESS, LONG_S)

    async def fetch() -> None:
        with pytest.raises(FetchFailedError):
            await store.fill(KEY, entry, source.chunks())

    async with asyncio.TaskGroup() as group, entry.open_reader() as body:
        group.create_task(fetch())
        for _ in range(5):
            await anext(body)
    assert source.remaining > 50


async def test_the_number_of_unread_fetches_is_limited(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("sandbox.egress_proxy.file_cache.MAX_UNREAD", 1)
    store = FileCache(tmp_path, 16 * KIB)
    first, second = store.begin("a", HEAD, LONG_S), store.begin("b", HEAD, LONG_S)
    with pytest.raises(FetchFailedError):
        await store.fill("a", first, chunks(b"the ", b"file"))
    await store.fill("b", second, chunks(b"the ", b"file"))
    assert await everything(store.find("b")) == b"the file"


async def test_files_being_fetched_or_read_count_and_are_not_evicted(tmp_path: Path):
    store, held = FileCache(tmp_path, 9 * KIB), {key: Held() for key in "ab"}
    await fill(store, b"x" * 2 * KIB)
    found = store.find(KEY)
    assert found is not None
    async with found.open_reader() as body, asyncio.TaskGroup() as group:
        for key, until in held.items():
            arriving = chunks(b"x" * 2 * KIB, b"end", until=until)
            group.create_task(store.fill(key, store.begin(key, HEAD, LONG_S), arriving))
            await until.reached.wait()
        with pytest.raises(FetchFailedError):
            await store.fill("c", store.begin("c", HEAD, LONG_S), chunks(b"x" * 4 * KIB))
        assert len(b"".join([each async for each in body])) == 2 * KIB
        for until in held.values():
            until.set()
    assert [store.find(key) is not None for key in "abc"] == [True, True, False]


async def test_a_replaced_file_counts_while_it_is_open(tmp_path: Path):
    store = FileCache(tmp_path, 8 * KIB)
    await fill(store, b"x" * 4 * KIB)
    found = store.find(KEY)
    assert found is not None
    async with found.open_reader() as body:
        await anext(body)
        for number in range(8):
            await fill(store, b"x" * KIB)
            await store.fill(f"{number}", store.begin(f"{number}", HEAD, LONG_S), chunks(b"x" * KIB))
            assert on_disk(tmp_path) <= 4 * KIB
    await store.fill("last", store.begin("last", HEAD, LONG_S), chunks(b"x" * 4 * KIB))
    assert on_disk(tmp_path) > 4 * KIB


async def test_the_number_of_files_is_limited(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("sandbox.egress_proxy.file_cache.MAX_FILES", 3)
    store = FileCache(tmp_path, 16 * KIB)
    for key in "abcdef":
        await store.fill(key, store.begin(key, HEAD, LONG_S), chunks(b"x"))
    await store.fill("empty", store.begin("empty", HEAD, LONG_S), chunks(b""))
    assert count_files(tmp_path, "body") == count_files(tmp_path, "json") == 3
    assert count_files(tmp_path, "part") == 0


def test_a_response_declared_too_large_is_not_cached(tmp_path: Path):
    store = FileCache(tmp_path, 10)
    lengths = ("5", "6", "x")
    assert [store.may_keep(ResponseHead(200, (("content-length", each),))) for each in lengths] == [True, False, True]

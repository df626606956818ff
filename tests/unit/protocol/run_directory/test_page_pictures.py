"""If these fail, pictures of an agent's browser fill the disk, or what a sandbox wrote is served as a picture."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from protocol.run_directory.page_pictures import (
    MAX_EPISODE_BYTES,
    MAX_SIDE,
    PICTURE_BYTES,
    PictureWriter,
    is_picture,
    list_pictures,
    pictures_path,
    read_picture,
    remove_oldest,
)
from tests.support.pages.page_pictures import make_picture

PICTURE = make_picture("Lamps")
BUDGET = 64 << 20


def test_what_a_browser_shows_is_read_back_by_turn(tmp_path: Path):
    writer = PictureWriter(pictures_path(tmp_path, "one-a0"), BUDGET)
    others = [make_picture(f"page {number}") for number in range(2)]
    for turn, picture in ((0, PICTURE), (2, others[0]), (2, others[1])):
        writer.record(turn, picture)
    assert [picture.turn for picture in list_pictures(writer.path)] == [0, 2, 2]
    assert [read_picture(writer.path, number) for number in range(4)] == [PICTURE, *others, None]
    assert (writer.refused, writer.removed) == (0, 0)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"<svg onload=alert(1)>",
        b"\x89PNG\r\n\x1a\n" + PICTURE,
        PICTURE[:-2],
        PICTURE + b"<script>",
        b"\xff\xd8\xff\xd9",
        b"\xff\xd8" + b"\xff\xfe\x00\x00" * 10 + b"\xff\xd9",
        PICTURE[:-2] + bytes(PICTURE_BYTES) + b"\xff\xd9",
        make_picture("too wide", width=MAX_SIDE + 1, height=8),
    ],
)
def test_only_a_jpeg_of_a_modest_size_is_written_and_served(tmp_path: Path, data: bytes):
    assert not is_picture(data)
    writer = PictureWriter(tmp_path / "x.jpegs", BUDGET)
    writer.record(0, data)
    assert (writer.refused, writer.path.exists()) == (1, False)
    writer.path.write_bytes(b'{"turn":0,"bytes":%d}\n%s' % (len(data), data))
    assert read_picture(writer.path, 0) is None


def test_an_episode_has_a_bound_and_counts_what_is_beyond(tmp_path: Path):
    writer = PictureWriter(tmp_path / "x.jpegs", BUDGET)
    fits = MAX_EPISODE_BYTES // (len(PICTURE) + len('{"turn":0,"bytes":10000}\n'))
    for _ in range(fits + 3):
        writer.record(0, PICTURE)
    assert writer.path.stat().st_size <= MAX_EPISODE_BYTES
    assert 1 <= writer.refused <= 4
    assert len(list_pictures(writer.path)) + writer.refused == fits + 3


def test_the_oldest_episodes_make_room_for_a_new_one(tmp_path: Path):
    for age, name in enumerate(("new", "middle", "old")):
        path = tmp_path / f"{name}.jpegs"
        path.write_bytes(bytes(1000))
        os.utime(path, (10_000 - age, 10_000 - age))
    assert remove_oldest(tmp_path, 3000) == 0
    assert remove_oldest(tmp_path, 1999) == 2
    assert [path.stem for path in tmp_path.iterdir()] == ["new"]
    writer = PictureWriter(tmp_path / "next.jpegs", MAX_EPISODE_BYTES)
    writer.record(0, PICTURE)
    writer.record(1, PICTURE)
    assert (writer.removed, [path.stem for path in tmp_path.iterdir()]) == (1, ["next"])


def test_pictures_can_be_turned_off(tmp_path: Path):
    writer = PictureWriter(pictures_path(tmp_path, "one"), 0)
    writer.record(0, PICTURE)
    assert (list(tmp_path.iterdir()), writer.refused) == ([], 0)


def test_a_torn_or_damaged_file_shows_what_is_whole_before(tmp_path: Path):
    writer = PictureWriter(tmp_path / "x.jpegs", BUDGET)
    writer.record(0, PICTURE)
    whole = writer.path.read_bytes()
    for tail in (whole[:-1], b'{"turn":1', b'{"turn":1,"bytes":-5}\n', b'{"turn":"1","bytes":5}\n12345', b"\x00" * 500):
        writer.path.write_bytes(whole + tail)
        assert len(list_pictures(writer.path)) == 1
    assert list_pictures(tmp_path / "missing") == []


def test_a_second_attempt_replaces_the_pictures_of_the_first(tmp_path: Path):
    PictureWriter(tmp_path / "x.jpegs", BUDGET).record(0, PICTURE)
    PictureWriter(tmp_path / "x.jpegs", BUDGET).record(5, PICTURE)
    assert [picture.turn for picture in list_pictures(tmp_path / "x.jpegs")] == [5]


def test_a_tools_picture_may_be_as_large_as_one_that_is_written():
    largest = PICTURE[:-2] + bytes(PICTURE_BYTES - len(PICTURE)) + PICTURE[-2:]
    assert len(largest) == PICTURE_BYTES
    assert is_picture(largest)

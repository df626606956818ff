"""If these fail, SWE-SYNTH's bugs that are fetched are lost, fetched twice, or mixed with something else."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator
from pathlib import Path

import pytest
import pytest_asyncio

from launch.data.__main__ import COMMAND
from launch.data.bucket import FetchedBugs, fetch_bugs, parse_numbers
from protocol.cli.exit_codes import EXIT_FAILED
from protocol.errors import UserError
from sandbox.tasks.formats.registry import load_tasks
from tests.support.commands import call_json
from tests.support.fakes.fake_bucket import FakeBucket
from tests.support.tasks.bug_rows import bug_row


@pytest_asyncio.fixture
async def bucket() -> AsyncGenerator[FakeBucket]:
    async with FakeBucket().served() as served:
        yield served


async def test_bugs_are_fetched_in_order_and_are_tasks(bucket: FakeBucket, tmp_path: Path):
    for number in (3, 4, 6):
        bucket.add(number)
    bucket.busy_once = {"task_00000000004.json"}
    file = tmp_path / "new" / "bugs.jsonl"
    assert await fetch_bugs(bucket.url, [3, 4, 5, 6], file, 2) == FetchedBugs(3, 0, (5,), ())
    assert [task.id for task in load_tasks(file).tasks] == ["swe-synth-3", "swe-synth-4", "swe-synth-6"]
    assert bucket.asked["task_00000000004.json"] == 2


async def test_what_is_there_is_not_fetched_again(bucket: FakeBucket, tmp_path: Path):
    for number in (1, 2, 3):
        bucket.add(number)
    file = tmp_path / "bugs.jsonl"
    await fetch_bugs(bucket.url, [1, 2], file, 1)
    file.write_bytes(file.read_bytes()[:-20])  # the last row was being written
    assert await fetch_bugs(bucket.url, [1, 2, 3], file, 8) == FetchedBugs(2, 1, (), ())
    assert bucket.asked["task_00000000001.json"] == 1
    assert len(load_tasks(file).tasks) == 3


@pytest.mark.parametrize(
    ("content", "says"),
    [("<html>", "is not JSON"), ({"x": 1}, "is no bug"), (403, r"cannot be fetched \(403 Forbidden")],
)
async def test_something_else_is_refused_in_one_line(bucket: FakeBucket, tmp_path: Path, content: object, says: str):
    bucket.objects["task_00000000001.json"] = content
    with pytest.raises(UserError, match=says) as found:
        await fetch_bugs(bucket.url, [1], tmp_path / "bugs.jsonl", 1)
    assert "\n" not in str(found.value)
    assert not (tmp_path / "bugs.jsonl").exists()


@pytest.mark.parametrize(("damaged", "at_once"), [(1, 3), (3, 1)])
async def test_a_damaged_object_stops_no_other(bucket: FakeBucket, tmp_path: Path, damaged: int, at_once: int):
    for number in {1, 2, 3} - {damaged}:
        bucket.add(number)
    bucket.objects[f"task_{damaged:011d}.json"] = "{torn"
    done = await fetch_bugs(bucket.url, [1, 2, 3], tmp_path / "bugs.jsonl", at_once)
    assert (done.written, done.missing, len(done.damaged)) == (2, (), 1)
    assert f"task_{damaged:011d}.json is not JSON" in done.damaged[0]


async def test_a_bucket_that_does_not_answer_is_named(bucket: FakeBucket, tmp_path: Path):
    unused = bucket.url.replace("127.0.0.1", "127.0.0.2")
    with pytest.raises(UserError, match=r"task_00000000001.json cannot be fetched .*see the URL; the same command"):
        await fetch_bugs(unused, [1], tmp_path / "bugs.jsonl", 1)


@pytest.mark.parametrize(
    "content",
    [
        '{"prompt": "x"}\n',
        '{"task_id": 1, "prompt": "x"}\n',
        "my single line notes",
        "1",
        f"[{json.dumps(bug_row())}]",
        f"{json.dumps(bug_row())}\n" + '{"prompt": "x"}',
        f"{json.dumps(bug_row())}\nnotes",
        json.dumps(bug_row() | {"task_id": True}),
        '{"task_id":1,"prompt":"x"}',
    ],
)
async def test_a_file_of_something_else_is_left_alone(bucket: FakeBucket, tmp_path: Path, content: str):
    bucket.add(1)
    (tmp_path / "other.jsonl").write_text(content)
    with pytest.raises(UserError, match=r"other.jsonl:\d is no fetched bug: choose another --output"):
        await fetch_bugs(bucket.url, [1], tmp_path / "other.jsonl", 1)
    assert (tmp_path / "other.jsonl").read_text() == content


async def test_a_whole_last_row_without_its_end_of_line_is_kept(bucket: FakeBucket, tmp_path: Path):
    bucket.add(8)
    file = tmp_path / "bugs.jsonl"
    file.write_text(json.dumps(bug_row()))
    assert await fetch_bugs(bucket.url, [7, 8], file, 1) == FetchedBugs(1, 1, (), ())
    assert [task.id for task in load_tasks(file).tasks] == ["swe-synth-7", "swe-synth-8"]


async def test_a_folder_is_no_file_of_bugs(bucket: FakeBucket, tmp_path: Path):
    with pytest.raises(UserError, match=r"Is a directory; choose another path, --output FILE"):
        await fetch_bugs(bucket.url, [1], tmp_path, 1)


async def test_a_bug_has_the_number_by_which_it_was_fetched(bucket: FakeBucket, tmp_path: Path):
    bucket.add(3)
    bucket.objects["task_00000000003.json"] = bug_row() | {"task_id": "x"}
    file = tmp_path / "bugs.jsonl"
    await fetch_bugs(bucket.url, [3], file, 1)
    assert await fetch_bugs(bucket.url, [3], file, 1) == FetchedBugs(0, 1, (), ())
    assert [task.id for task in load_tasks(file).tasks] == ["swe-synth-3"]


async def test_the_command_says_what_the_bucket_lacks(
    bucket: FakeBucket, tmp_path: Path, capfd: pytest.CaptureFixture[str]
):
    bucket.add(1)
    words = ["get", bucket.url, "--ids", "1-2", "--output", str(tmp_path / "bugs.jsonl")]
    done = await asyncio.to_thread(call_json, capfd, "launch.data", *words)
    assert (done.exit_code, done.output["written"], done.output["missing"]) == (EXIT_FAILED, 1, [2])
    bucket.objects["task_00000000003.json"] = {"x": 1}
    done = await asyncio.to_thread(call_json, capfd, "launch.data", *words[:3], "1,3", *words[4:])
    assert (done.exit_code, done.output["kept"], len(done.output["damaged"])) == (EXIT_FAILED, 1, 1)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["get", "bucket", "--ids", "1"], "is no URL of a bucket"),
        (["get", "http://h/b"], "--ids names no bug"),
        (["get", "http://h/b", "--ids", "9-1"], "write numbers and ranges of them"),
        (["get", "http://h/b", "--ids", "x"], "write numbers and ranges of them"),
        (["get", "http://h/b", "--ids", "0-99999999999"], "fetch fewer at a time"),
        (["put", "http://h/b"], "get"),
    ],
)
def test_a_mistake_is_named_before_anything_is_asked(words: list[str], says: str):
    with pytest.raises(UserError, match=says):
        COMMAND.call(words)


def test_numbers_and_ranges_are_read():
    assert parse_numbers(["5", "1-3", "3"]) == [1, 2, 3, 5]

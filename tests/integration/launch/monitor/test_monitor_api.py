"""A real server and a real client.  If these fail, a page that lost its connection misses what happened, a stranger
reads a run, a damaged file takes the monitor down, or the monitor holds up the run."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import json
import os
import random
import re
import shutil
import signal
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from dataclasses import fields
from itertools import count
from pathlib import Path
from threading import Event, Thread

import aiohttp
import pytest

from launch.bench.monitor.event_client import count_written_events, event_key, read_server_sent_events
from launch.bench.monitor.synthetic_run import write_synthetic_run
from launch.monitor import api_types
from protocol import codec
from protocol.events import EventLog
from protocol.groups import GroupPlan
from protocol.journal import Journal, JournalSettings, TrajectoryArrival, wal_bytes
from protocol.run_directory.page_pictures import PictureWriter, pictures_path
from protocol.run_directory.terminal_recordings import CastWriter
from protocol.trajectory import GroupId
from tests.support.fakes.fake_run import write_fake_run
from tests.support.pages.monitors import Monitor, start_monitor
from tests.support.pages.page_pictures import make_picture
from tests.support.runs.trajectories import RUN, make_trajectory

COUNT = 128
FIRST = "train-g000001-s00"


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Monitor, Path]]:
    runs = tmp_path_factory.mktemp("runs")
    write_synthetic_run(runs / "history", COUNT)
    write_synthetic_run(runs / "other", 64)
    with start_monitor(runs / "history") as monitor:
        yield monitor, runs / "history"


@pytest.fixture
async def session() -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=600)) as opened:
        yield opened


async def ask(session: aiohttp.ClientSession, monitor: Monitor, path: str, status: int = 200, **options: object):
    async with session.get(monitor.url + path, **options) as answer:
        body = await answer.read()
    assert answer.status == status, body
    return json.loads(body)


def names(shape: type) -> set[str]:
    return {field.name for field in fields(shape)}


# -- answers -----------------------------------------------------------------------------------------------------------

ONE = f"/api/runs/-/trajectories/{FIRST}"


@pytest.mark.parametrize(
    ("path", "shape"),
    [
        ("/api/runs/-/head", api_types.RunProgress),
        ("/api/runs/other/head", api_types.RunProgress),
        ("/api/runs/-/metrics?names=loss&points=1", api_types.MetricColumns),
        ("/api/runs/-/groups/1", api_types.GroupDetail),
        (ONE, api_types.TrajectoryDetail),
        (f"{ONE}/tokens?start=60&limit=10", api_types.TokenPage),
        ("/api/runs/-/activity?slots=10", api_types.ActivityTimeline),
    ],
)
async def test_an_answer_has_the_shape_declared_in_the_api(served, session, path: str, shape: type) -> None:
    assert set(await ask(session, served[0], path)) == names(shape)


@pytest.mark.parametrize(
    ("path", "shape", "total"),
    [
        ("/api/runs/-/steps", api_types.StepRow, None),
        ("/api/runs/-/groups?sort=spread", api_types.GroupRow, COUNT // 8),
        ("/api/runs/-/trajectories?limit=3", api_types.TrajectoryRow, COUNT),
        ("/api/runs/other/trajectories?limit=3", api_types.TrajectoryRow, 64),
    ],
)
async def test_a_list_has_the_shape_declared_in_the_api(served, session, path: str, shape: type, total) -> None:
    page = await ask(session, served[0], path)
    assert set(page) == names(api_types.ResultPage)
    assert all(set(row) == names(shape) for row in page["rows"])
    assert total is None or page["total"] == total


async def test_the_api_leads_from_the_worst_trajectory_of_the_last_step_to_its_tokens(served, session) -> None:
    """The way that a person goes."""
    monitor, _ = served
    page = await ask(session, monitor, "/api/runs/-/trajectories?step=last&sort=worst&limit=1")
    (worst,) = page["rows"]
    group = await ask(session, monitor, f"/api/runs/-/groups/{worst['group']}")
    assert min(each["row"]["reward"] for each in group["members"]) == worst["reward"]
    detail = await ask(session, monitor, f"/api/runs/-/trajectories/{worst['id']}")
    model = [turn for turn in detail["segments"][0]["turns"] if turn["kind"] == "model"]
    assert [turn["index"] for turn in model] == list(range(len(model)))
    assert all(turn["at_s"] is not None for turn in model)
    tokens = await ask(session, monitor, f"/api/runs/-/trajectories/{worst['id']}/tokens?start={model[0]['start']}")
    assert tokens["use"][0] == "trained"
    assert tokens["logprob_gap"][0] == pytest.approx(-0.01, abs=1e-3)
    async with session.get(f"{monitor.url}/api/runs/-/recordings/{worst['recording']}") as answer:
        header, *events = (await answer.text()).splitlines()
    assert json.loads(header)["version"] == 2
    assert [json.loads(event)[2] for event in events if json.loads(event)[1] == "m"] == [
        f"turn {turn['index']}" for turn in model
    ]


async def test_a_picture_of_a_page_is_a_jpeg_and_nothing_else(served, session) -> None:
    monitor, run_dir = served
    row = (await ask(session, monitor, "/api/runs/-/trajectories?limit=1"))["rows"][0]
    writer, picture = PictureWriter(pictures_path(run_dir, row["recording"]), 1 << 20), make_picture("Lamps")
    writer.record(0, picture)
    with writer.path.open("ab") as file:
        file.write(b'{"turn":0,"bytes":9}\n<script/>')
    detail = await ask(session, monitor, f"/api/runs/-/trajectories/{row['id']}")
    model = [turn for turn in detail["segments"][0]["turns"] if turn["kind"] == "model"]
    assert [turn["pictures"] for turn in model][:2] == [[0, 1], []]
    of = f"{monitor.url}/api/runs/-/trajectories/{row['id']}"
    async with session.get(f"{of}/pictures/0") as answer:
        assert (await answer.read(), answer.headers["content-type"]) == (picture, "image/jpeg")
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["content-security-policy"].startswith("default-src 'none'")
    for number, status in (("1", 404), ("2", 404), ("-1", 400), ("x", 400)):
        async with session.get(f"{of}/pictures/{number}") as answer:
            assert answer.status == status
    async with session.get(f"{of}/export") as answer:
        assert f"data:image/jpeg;base64,{base64.b64encode(picture).decode()}" in await answer.text()


async def test_other_runs_in_the_same_folder_are_listed(served, session) -> None:
    found = await ask(session, served[0], "/api/runs")
    assert found["current"] == "history"
    assert {run["id"] for run in found["runs"]} == {"history", "other"}
    assert all(set(run) == names(api_types.RunCard) for run in found["runs"])


async def test_another_run_in_the_same_folder_is_complete_from_its_first_answer(tmp_path: Path, session) -> None:
    """Otherwise its page would briefly show an empty run, and its stream would report the whole past as news."""
    write_synthetic_run(tmp_path / "one", 64)
    write_synthetic_run(tmp_path / "other", 64)
    with start_monitor(tmp_path / "one") as monitor:
        head = await ask(session, monitor, "/api/runs/other/head")
        assert head["last_event_at"] is not None
        assert not (await ask(session, monitor, "/api/runs/other/state"))["empty"]
        async with session.get(f"{monitor.url}/api/runs/other/events?cursor=now") as stream:
            assert (await stream.content.readline()).strip() == b"event: head"


async def test_a_run_without_a_driver_is_not_shown_as_running(tmp_path: Path, session) -> None:
    write_fake_run(tmp_path / "left", steps=3, finished=False)
    with start_monitor(tmp_path / "left") as monitor:
        head, state = [await ask(session, monitor, f"/api/runs/-/{what}") for what in ("head", "state")]
    assert (head["status"], head["running"]) == ("stopped", 0)
    assert head["resume_command"].startswith("longshore cluster --resume left")
    assert head["directory"] == str(tmp_path / "left")
    assert (state["running"], state["sandboxes"]["live"]) == ([], 0)


async def test_a_step_is_answered_with_its_line_of_the_metrics(served, session) -> None:
    monitor, run_dir = served
    line = json.loads((run_dir / "metrics.jsonl").read_bytes().splitlines()[0])
    assert await ask(session, monitor, "/api/runs/-/steps/1") == line


@pytest.mark.parametrize(
    ("path", "status", "message"),
    [
        ("/api/runs/-/trajectories?sort=up", 400, "one of newest"),
        ("/api/runs/-/trajectories?reward_mn=1", 400, "did you mean 'reward_min'"),
        ("/api/runs/-/trajectories?reward_min=nan", 400, "is not a number"),
        ("/api/runs/-/trajectories?limit=0", 400, "from 1 to 500"),
        ("/api/runs/-/trajectories?limit=²", 400, "a whole number"),
        ("/api/runs/-/trajectories?cursor=1", 400, "is not valid"),
        ("/api/runs/-/trajectories?state=lost", 400, "buffered, trained, dropped"),
        ("/api/runs/-/trajectories?passed=maybe", 400, "true or false"),
        ("/api/runs/-/groups?sort=logprob_gap", 400, "one of newest"),
        ("/api/runs/-/groups/x", 400, "a whole number"),
        ("/api/runs/-/groups/999999", 404, "no group 999999"),
        ("/api/runs/-/steps/999", 404, "step 999"),
        ("/api/runs/-/trajectories/train-g999999-s00", 404, "has no trajectory"),
        ("/api/runs/-/trajectories/..%2Fconfig", 404, ""),
        (f"{ONE}/tokens?segment=7", 404, "no segment 7"),
        ("/api/runs/-/recordings/..%2F..%2Fconfig.json", 404, ""),
        ("/api/runs/-/recordings/nothing", 404, "no terminal"),
        ("/api/runs/-/summary", 404, "no summary.json"),
        ("/api/runs/-/activity?since=inf", 400, "is not a number"),
        ("/api/runs/-/head?names=1", 400, "unknown parameter 'names'"),
        ("/api/runs/-/state?names=1", 400, "unknown parameter 'names'"),
        ("/api/runs/-/events?from=now", 400, "unknown parameter 'from'"),
        ("/api/runs/-/activity?slots=5000", 400, "from 1 to 1000"),
        ("/api/runs/-/events?cursor=what", 400, "the cursor is invalid"),
        ("/api/runs/-/terminals", 400, "names 1 to 64"),
        ("/api/runs/-/terminals?watch=..%2Fx", 400, "names 1 to 64"),
        ("/api/runs/nobody/head", 404, "no run 'nobody'"),
        ("/api/runs/..%2Fhistory/head", 404, ""),
        ("/api/nothing", 404, "the page is at /"),
    ],
)
async def test_an_invalid_request_is_answered_with_one_clear_line(
    served, session, path: str, status: int, message: str
) -> None:
    url = aiohttp.client.URL(served[0].url + path, encoded=True) if "%" in path else served[0].url + path
    async with session.get(url) as answer:
        body = await answer.json()
    assert answer.status == status
    assert set(body) == {"error"}
    assert message in body["error"]
    assert "\n" not in body["error"]


# -- streams -----------------------------------------------------------------------------------------------------------


async def test_a_client_that_is_cut_fifty_times_misses_nothing_and_sees_nothing_twice(tmp_path: Path, session) -> None:
    """Anywhere in a message, while the run writes, and by another monitor in the middle of it."""
    run_dir, rng, stop = tmp_path / "run", random.Random(5), Event()
    write_synthetic_run(run_dir, 64)
    writer = Thread(target=_write_events, args=(run_dir, stop))
    writer.start()
    seen: Counter[tuple[object, ...]] = Counter()
    last = ""
    try:
        for half in range(2):
            with start_monitor(run_dir) as monitor:
                for _ in range(25):
                    last = await _read_some(session, monitor, last, rng.randrange(1, 40_000), seen)
            assert half or last
    finally:
        stop.set()
        writer.join()
    expected = count_written_events(run_dir)
    with start_monitor(run_dir) as monitor:
        async with session.get(f"{monitor.url}/api/runs/-/events", headers={"Last-Event-ID": last}) as answer:
            async for message in read_server_sent_events(answer):
                if message.event == "events":
                    seen.update(event_key(item["event"]) for item in json.loads(message.data))
                if seen.total() >= expected.total():
                    break
    assert seen == expected


def _write_events(run_dir: Path, stop: Event) -> None:
    log = EventLog(run_dir, "late", "node-0")
    for number in count():
        log.emit("node.up", name=f"node-{number}", padding="x" * (number % 300))
        if stop.wait(0.002):
            break
    log.close()


async def _read_some(session: aiohttp.ClientSession, monitor: Monitor, last: str, most: int, seen: Counter) -> str:
    """Read ``most`` bytes or so and break off; the last id of a message that was whole."""
    headers = {"Last-Event-ID": last} if last else {}
    rest = b""
    async with session.get(f"{monitor.url}/api/runs/-/events", headers=headers) as answer:
        async for chunk in answer.content.iter_any():
            rest += chunk[: most - len(rest)]
            if len(rest) >= most:
                break
    *whole, _ = rest.split(b"\n\n")
    for message in whole:
        fields = dict(line.split(b": ", 1) for line in message.splitlines() if b": " in line)
        if fields.get(b"event") == b"events":
            seen.update(event_key(item["event"]) for item in json.loads(fields[b"data"]))
            last = fields[b"id"].decode()
    return last


async def test_an_event_on_the_stream_is_already_in_the_lists(tmp_path: Path, session) -> None:
    run_dir = tmp_path / "run"
    write_synthetic_run(run_dir, 64)
    with start_monitor(run_dir) as monitor:
        async with session.get(f"{monitor.url}/api/runs/-/events?cursor=now") as answer:
            stream = read_server_sent_events(answer)
            assert (await anext(stream)).event == "head"
            log = EventLog(run_dir, "buffer", "node-0")
            log.emit("group.opened", group=4242, task="new", size=4)
            log.close()
            async for message in stream:
                if message.event == "events":
                    break
            (item,) = json.loads(message.data)
            assert item["event"]["group"] == 4242
            group = await ask(session, monitor, "/api/runs/-/groups/4242")
            assert (group["row"]["state"], group["missing"]) == ("open", [0, 1, 2, 3])


async def test_control_sequences_are_removed_from_events(tmp_path: Path, session) -> None:
    log = EventLog(tmp_path, "worker-0", "node-0")
    log.emit("episode.tool", trajectory="t", tool="sh", command="echo \x1b]0;owned\x07\x1b[2Jhi\n\nevent: gone")
    log.close()
    with start_monitor(tmp_path) as monitor:
        async with session.get(f"{monitor.url}/api/runs/-/events") as answer:
            message = await anext(read_server_sent_events(answer))
            (item,) = json.loads(message.data)
    assert item["event"]["command"] == "echo hi\n\nevent: gone"


@pytest.mark.slow
async def test_several_terminals_share_one_connection_and_resume_where_they_stopped(tmp_path: Path, session) -> None:
    (tmp_path / "events").mkdir()
    casts = {name: CastWriter.open(tmp_path / "terminals" / f"{name}.cast", 100, 30, name) for name in ("a", "b")}
    log = EventLog(tmp_path, "worker-0", "node-0")
    for name, cast in casts.items():
        log.emit("episode.started", trajectory=name, task="t")
        cast.record_output(f"hello {name} \x1b]52;c;aGk=\x07")
    seen: dict[str, str] = {"a": "", "b": ""}
    url = "/api/runs/-/terminals?watch=a,b"
    with start_monitor(tmp_path) as monitor:
        last = await _play(session, monitor.url + url, "", seen, until=lambda: all(seen.values()))
        casts["a"].record_output("again")
        for name in ("a", "b"):
            log.emit("episode.finished", trajectory=name, status="completed", reward=1.0)
        await _play(session, monitor.url + url, last, seen, until=lambda: False)
        assert seen == {"a": "hello a again", "b": "hello b "}
        ended = {"a": "", "b": ""}
        await _play(session, f"{monitor.url}{url}&from=end", "", ended, until=lambda: False)
        assert ended == seen
    log.close()
    for cast in casts.values():
        cast.close()


async def _play(session: aiohttp.ClientSession, url: str, last: str, seen: dict[str, str], until) -> str:
    """Until then, or the stream's end."""
    async with session.get(url, headers={"Last-Event-ID": last} if last else {}) as answer:
        assert answer.status == 200
        async for message in read_server_sent_events(answer):
            event = json.loads(message.data)
            for _, text in event.get("events", []):
                seen[event["trajectory"]] += text
            last = message.id
            if until():
                break
    return last


# -- who may ask -------------------------------------------------------------------------------------------------------


async def test_beyond_loopback_every_request_needs_the_token(tmp_path: Path) -> None:
    write_synthetic_run(tmp_path / "run", 64)
    env = {"LONGSHORE_MONITOR_TOKEN": "right-token"}
    with start_monitor(tmp_path / "run", "--host", "0.0.0.0", env=env) as monitor:  # noqa: S104  that is what is tested
        port = monitor.url.rpartition(":")[2]
        url = f"http://127.0.0.1:{port}"
        assert monitor.address.endswith("/?token=right-token")
        jar = aiohttp.CookieJar(unsafe=True)  # which has cookies of addresses without a name
        async with aiohttp.ClientSession(cookie_jar=jar) as session:
            for path, options in (
                ("/", {}),
                ("/?token=wrong", {}),
                ("/static/page/app.js", {}),
                ("/api/runs/-/head", {"headers": {"Authorization": "Bearer wrong"}}),
                ("/api/runs/-/events", {"headers": {"Cookie": "longshore_monitor=wrong"}}),
            ):
                async with session.get(url + path, **options) as answer:
                    assert answer.status == 401, path
                    line = await answer.text()
                    assert "open the address that it printed" in line
                    assert answer.headers["Content-Security-Policy"].startswith("default-src 'none'")
            right = {"Authorization": "Bearer right-token"}
            async with session.get(f"{url}/api/runs/-/head", headers=right) as answer:
                assert answer.status == 200
            async with session.get(f"{url}/?token=right-token") as answer:
                assert answer.status == 200
                assert str(answer.url) == f"{url}/", "the token does not stay in the address"
            async with session.get(f"{url}/api/runs/-/head") as answer:
                assert answer.status == 200, "by its cookie"
            (cookie,) = jar
            assert cookie["httponly"]
            assert cookie["samesite"].lower() == "strict"


async def test_on_loopback_another_host_name_is_refused(served, session) -> None:
    async with session.get(f"{served[0].url}/api/runs", headers={"Host": "evil.example"}) as answer:
        assert answer.status == 400


# -- files to keep -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("path", "name"), [(f"trajectories/{FIRST}", FIRST), ("groups/1", "group-1")])
async def test_an_exported_page_contains_all_the_data_it_requests_and_allows_no_other_script(
    served, session, path, name
) -> None:
    """Otherwise it would open empty on a machine without this monitor, or run what a sandbox printed."""
    async with session.get(f"{served[0].url}/api/runs/history/{path}/export") as answer:
        assert answer.status == 200
        assert f"history-{name}.html" in answer.headers["Content-Disposition"]
        page = await answer.text()
    data = re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.DOTALL)
    assert data
    assert "<" not in data[1]
    answers = json.loads(data[1])["answers"]
    prefix = "/api/runs/history"
    assert {f"{prefix}/{path}", f"{prefix}/trajectories/{FIRST}"} <= answers.keys()
    assert answers[f"{prefix}/trajectories/{FIRST}/tokens?segment=0&start=0&limit=2000"]["total"] > 0
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', page)
    assert policy
    assert "default-src 'none'" in policy[1]
    assert "unsafe-inline" not in policy[1]
    for kind in ("<script>", '<script type="module">'):
        script = page.partition(kind)[2].partition("</script>")[0]
        assert base64.b64encode(hashlib.sha256(script.encode()).digest()).decode() in policy[1]


async def test_the_export_of_an_unknown_trajectory_or_group_is_a_clear_404(served, session) -> None:
    for path in ("trajectories/nobody", "groups/99999"):
        assert (await ask(session, served[0], f"/api/runs/-/{path}/export", 404))["error"]


# -- bad input ---------------------------------------------------------------------------------------------------------


async def test_a_damaged_run_is_shown_as_far_as_it_can_be(tmp_path: Path, session) -> None:
    run_dir = tmp_path / "run"
    write_synthetic_run(run_dir, 64)
    rng = random.Random(3)
    for path in [*run_dir.glob("events/*"), *run_dir.glob("*/index.jsonl"), *run_dir.glob("*.jsonl"),
                 *run_dir.glob("activity/*"), *run_dir.glob("*/*.bin"), *run_dir.glob("terminals/*")]:  # fmt: skip
        data = bytearray(path.read_bytes() or b"nothing\n")
        for _ in range(1 + len(data) // 4_000):
            data[rng.randrange(len(data))] = rng.randrange(256)
        path.chmod(0o644)
        path.write_bytes(bytes(data[: rng.randrange(len(data) // 2, len(data))]))
    (run_dir / "config.json").write_bytes(b'{"config": 3')
    with start_monitor(run_dir) as monitor:
        head = await ask(session, monitor, "/api/runs/-/head")
        assert "damaged" in head["problem"]
        page = await ask(session, monitor, "/api/runs/-/trajectories?limit=500")
        assert 10 < page["total"] <= 64
        for row in page["rows"]:
            async with session.get(f"{monitor.url}/api/runs/-/trajectories/{row['id']}") as answer:
                assert answer.status in {200, 404}, row
                assert answer.status == 200 or "cannot be read" in (await answer.json())["error"]
        for path in ("steps", "groups", "groups/1", "metrics", "activity", "state"):
            await ask(session, monitor, f"/api/runs/-/{path}")
        cards = await ask(session, monitor, "/api/runs")
        assert "cannot be read" in cards["runs"][0]["problem"]
        assert monitor.process.poll() is None


async def test_removing_a_run_ends_its_streams_with_a_clear_message(tmp_path: Path, session) -> None:
    run_dir = tmp_path / "run"
    write_synthetic_run(run_dir, 64)
    with start_monitor(run_dir) as monitor:
        async with session.get(f"{monitor.url}/api/runs/-/events?cursor=now") as answer:
            stream = read_server_sent_events(answer)
            assert (await anext(stream)).event == "head"
            await asyncio.to_thread(shutil.rmtree, run_dir)
            messages = [message async for message in stream]
        assert messages[-1].event == "run_removed"
        assert "was removed while this monitor watched it" in json.loads(messages[-1].data)["error"]
        gone = await ask(session, monitor, "/api/runs/-/trajectories", 410)
        assert "was removed" in gone["error"]
        async with session.get(monitor.url) as page:
            assert page.status == 200
        assert monitor.process.poll() is None


async def test_two_monitors_of_one_run_say_the_same(served, session) -> None:
    monitor, run_dir = served
    with start_monitor(run_dir) as second:
        for path in ("trajectories?limit=500", "groups?sort=spread", "steps", "metrics"):
            url = f"/api/runs/-/{path}"
            assert await ask(session, monitor, url) == await ask(session, second, url)


def test_a_monitor_exits_when_its_port_is_taken(served) -> None:
    monitor, run_dir = served
    with start_monitor(run_dir, "--port", monitor.url.rpartition(":")[2]) as second:
        assert second.process.wait(60) == 2
        assert not second.address


# -- the run does not wait ---------------------------------------------------------------------------------------------


async def test_a_monitor_stopped_during_a_read_does_not_hold_the_journal(tmp_path: Path, session) -> None:
    """It never opens it: the journal's log goes into the database as if nobody read, and no append waits."""
    run_dir = tmp_path / "run"
    settings = JournalSettings(run_id=RUN, max_trajectory_bytes=1 << 17, budget_bytes=8 << 20, dynamic_sampling=True)
    write_synthetic_run(run_dir, 256)
    (run_dir / "buffer" / "journal.sqlite").unlink()
    journal = Journal(run_dir / "buffer" / "journal.sqlite", settings)
    bound = 2 * wal_bytes(settings.budget_bytes)
    with start_monitor(run_dir) as monitor:
        async with session.get(f"{monitor.url}/api/runs/-/events") as answer:
            assert await answer.content.readany()  # it is in the middle of the run's events
            os.kill(monitor.process.pid, signal.SIGSTOP)
            try:
                largest = _append_many(journal, run_dir, bound)
                opened = _open_files(monitor.process.pid)
            finally:
                os.kill(monitor.process.pid, signal.SIGCONT)
            stream = read_server_sent_events(answer)
            while (await anext(stream)).event != "head":  # it goes on, and comes to the end of them
                pass
    journal.close()
    assert not [name for name in opened if "journal" in name]
    assert largest <= bound


def _open_files(pid: int) -> list[str]:
    return [str(fd.readlink()) for fd in Path(f"/proc/{pid}/fd").iterdir()]


def _append_many(journal: Journal, run_dir: Path, bound: int) -> int:
    """Three times what the log may hold; the largest that it was."""
    log, largest, written = run_dir / "buffer" / "journal.sqlite-wal", 0, 0
    for number in count(1_000):
        group = GroupId(number)
        journal.open_group(GroupPlan(group, f"task-{number}", (7, 8, 9, 10)), b"{}")
        arrivals = []
        for sample in range(4):
            blob = codec.pack_trajectory(make_trajectory(number, sample, reward=sample / 4, sampled=6_000))
            summary = codec.inspect_blob(blob)
            arrivals.append(TrajectoryArrival(summary.request, summary.reward.total, False,
                                    summary.status, summary.digest, blob, summary.sampled))  # fmt: skip
            written += len(blob)
        journal.append_batch(arrivals)
        lease = journal.lease_batch(1)
        assert lease is not None
        journal.mark_trained(number, lease.trajectory_ids, {})
        journal.commit_checkpoint(number)
        journal.compact_payloads(number)
        largest = max(largest, log.stat().st_size)
        if written > 3 * bound:
            return largest
    raise AssertionError("unreachable")

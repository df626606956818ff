"""A real server on loopback.  If these fail, a browser that lost its connection misses events, or a sandbox's text runs
in the page of the person who watches it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path

import aiohttp
import pytest

from launch.monitor.process import run_monitor_process
from launch.run_records.run_lock import hold_run_lock
from protocol.events import EventLog
from protocol.run_directory.terminal_recordings import CastWriter
from tests.support.fakes.fake_run import write_fake_run

HOSTILE = '<img src=x onerror="alert(1)"></script><script>alert(2)</script>\n\nevent: state\ndata: {}\n\n'


@contextmanager
def _monitor(run_dir: Path) -> Iterator[str]:
    command = [sys.executable, "-m", "launch.monitor", str(run_dir)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout
            yield process.stdout.readline().strip().rstrip("/")
        finally:
            process.terminate()


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Path]]:
    run_dir = tmp_path_factory.mktemp("runs") / "demo"
    write_fake_run(run_dir, steps=4, finished=False)
    with CastWriter.open(run_dir / "terminals" / "hostile.cast") as cast:
        cast.record_output(HOSTILE)
    with hold_run_lock(run_dir), _monitor(run_dir) as url:
        yield url, run_dir


@pytest.fixture
async def session() -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=30)) as opened:
        yield opened


async def _get(session: aiohttp.ClientSession, url: object, **options: object) -> aiohttp.ClientResponse:
    """The whole answer."""
    async with session.get(url, **options) as answer:
        await answer.read()
    return answer


async def _messages(answer: aiohttp.ClientResponse) -> AsyncIterator[tuple[str, str, str]]:
    """Id, event and data of each message."""
    fields = {"id": "", "event": "", "data": ""}
    async for raw in answer.content:
        line = raw.decode().rstrip("\n")
        if not line and fields["event"]:
            yield fields["id"], fields["event"], fields["data"]
            fields = {"id": "", "event": "", "data": ""}
        name, _, value = line.partition(": ")
        if name in fields:
            fields[name] = value


async def _some_events(session: aiohttp.ClientSession, url: str, last_id: str, enough: int) -> tuple[list, str]:
    seen = []
    async with session.get(f"{url}/api/runs/-/events", headers={"Last-Event-ID": last_id} if last_id else {}) as answer:
        assert answer.status == 200
        async for id_, event, data in _messages(answer):
            if event == "events":
                seen += [(item["event"]["writer"], item["event"]["seq"]) for item in json.loads(data)]
                last_id = id_
                if len(seen) >= enough:
                    break
    return seen, last_id


async def test_a_stream_that_breaks_goes_on_where_it_was(served, session):
    url, run_dir = served
    lines = [
        json.loads(line) for path in (run_dir / "events").glob("*.jsonl") for line in path.read_bytes().splitlines()
    ]
    expected = sorted((line["writer"], line["seq"]) for line in lines)
    seen, last_id = [], ""
    while len(seen) < len(expected):
        more, last_id = await _some_events(session, url, last_id, 1)
        seen += more
    assert sorted(seen) == expected


async def test_a_cursor_outlives_the_monitor(tmp_path: Path, session):
    run_dir = tmp_path / "demo"
    write_fake_run(run_dir, steps=2, finished=False)
    with _monitor(run_dir) as url:
        first, last_id = await _some_events(session, url, "", 1)
    log = EventLog(run_dir, "late", "node-0")
    log.emit("node.up", name="node-9")
    log.close()
    with _monitor(run_dir) as url:
        total = sum(len(path.read_bytes().splitlines()) for path in (run_dir / "events").glob("*.jsonl"))
        rest, _ = await _some_events(session, url, last_id, total - len(first))
    assert len(set(first + rest)) == len(first + rest) == total
    assert ("late", 0) in rest


async def test_the_stream_reports_a_new_phase_of_the_run(tmp_path: Path, session):
    log = EventLog(tmp_path, "driver", "node-0")
    with _monitor(tmp_path) as url:
        async with session.get(f"{url}/api/runs/-/events") as answer:
            stream = _messages(answer)
            heads = (json.loads(data) async for _, event, data in stream if event == "head")
            assert (await anext(heads))["phase"] == ""
            log.emit("run.phase", phase="training", detail="")
            assert (await anext(heads))["phase"] == "training"
    log.close()


async def test_a_terminal_is_followed_and_resumed_by_offset(served, session):
    url, run_dir = served
    state = await (await _get(session, f"{url}/api/runs/-/state")).json()
    name = state["running"][0]["trajectory"]
    lines = map(json.loads, (run_dir / "terminals" / f"{name}.cast").read_text().splitlines()[1:])
    whole = [text for _, code, text in lines if code == "o"]
    async with session.get(f"{url}/api/runs/-/terminals?watch={name}") as answer:
        stream = _messages(answer)
        offset, event, data = await anext(stream)
        assert event == "cast"
        assert [text for _, text in json.loads(data)["events"]] == whole
    path = run_dir / "terminals" / f"{name}.cast"
    with path.open("a") as file:
        file.write(json.dumps([99.0, "o", "late\r\n"]) + "\n")
    async with session.get(f"{url}/api/runs/-/terminals?watch={name}", headers={"Last-Event-ID": offset}) as answer:
        _, _, data = await anext(_messages(answer))
        assert json.loads(data)["events"] == [[99.0, "late\r\n"]]


async def test_the_terminal_of_an_ended_session_ends(served, session):
    url, _ = served
    async with session.get(f"{url}/api/runs/-/terminals?watch=hostile") as answer:
        assert [event async for _, event, _ in _messages(answer)] == ["cast", "end"]


async def test_the_output_of_a_sandbox_is_served_only_as_data(served, session):
    url, _ = served
    async with session.get(f"{url}/api/runs/-/terminals?watch=hostile") as answer:
        assert answer.content_type == "text/event-stream"
        _, event, data = await anext(_messages(answer))
    assert event == "cast"
    assert json.loads(data)["events"][0][1] == HOSTILE.replace("\n", "\r\n"), "one message, nothing injected"
    answer = await _get(session, f"{url}/api/runs/-/recordings/hostile")
    assert answer.content_type == "application/x-asciicast"
    assert answer.headers["X-Content-Type-Options"] == "nosniff"


@pytest.mark.parametrize("path", ["/", "/static/page/app.js", "/api/runs/-/state", "/api/nothing", "/nowhere"])
async def test_every_answer_has_the_strict_policy(served, session, path: str):
    answer = await _get(session, served[0] + path)
    policy = answer.headers["Content-Security-Policy"]
    assert "default-src 'none'" in policy
    assert "script-src 'self'" in policy
    assert "unsafe" not in policy.replace("'wasm-unsafe-eval'", ""), "no markup's script, and no text is run"


def test_the_static_files_of_the_page_load_nothing_external_and_write_no_markup():
    folder = Path(__file__).parents[4] / "launch" / "pages" / "static"
    for path in filter(Path.is_file, folder.rglob("*")):
        text = path.read_text().replace("http://www.w3.org/2000/svg", "")
        assert "://" not in text, path.name
        for word in ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval("):
            assert word not in text, path.name


@pytest.mark.parametrize("name", ["nothing-here", "..%2F..%2Fconfig", ".hidden", "a%00b"])
async def test_an_unknown_terminal_is_a_clear_404(served, session, name: str):
    for kind in ("recordings", "trajectories"):
        answer = await _get(session, aiohttp.client.URL(f"{served[0]}/api/runs/-/{kind}/{name}", encoded=True))
        assert answer.status == 404
        assert "error" in await answer.json()


async def test_a_foreign_cursor_is_a_clear_400(served, session):
    answer = await _get(session, f"{served[0]}/api/runs/-/events", headers={"Last-Event-ID": "what"})
    assert answer.status == 400


async def test_another_host_name_is_refused(served, session):
    for host in ("evil.example", "evil.example:80", "[::1", ""):
        answer = await _get(session, f"{served[0]}/api/runs/-/state", headers={"Host": host})
        assert answer.status == 400
        assert "localhost" in (await answer.json())["error"]
    assert (await _get(session, f"{served[0]}/api/runs/-/state", headers={"Host": "localhost:1"})).status == 200


async def test_an_invalid_request_is_answered_with_a_json_error(served, session):
    for path in ("activity?since=5&until=1", "metrics?points=0"):
        answer = await _get(session, f"{served[0]}/api/runs/-/{path}")
        assert answer.status == 400
        assert "error" in await answer.json()
    async with session.post(f"{served[0]}/api/runs/-/state") as answer:
        assert (answer.status, await answer.json()) == (405, {"error": "only GET is allowed"})
    assert "error" in await (await _get(session, f"{served[0]}/static/nothing.js")).json()


def test_an_unknown_run_ends_with_exit_code_2(tmp_path: Path):
    command = [sys.executable, "-m", "launch.monitor", str(tmp_path / "nothing")]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 2
    assert "no run 'nothing' in " in done.stderr
    assert "Traceback" not in done.stderr


def test_json_prints_the_state_once(served):
    command = [sys.executable, "-m", "launch.monitor", str(served[1]), "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    assert json.loads(done.stdout)["phase"] == "training"


async def test_the_launcher_starts_and_ends_the_process(tmp_path: Path, session):
    async with run_monitor_process(tmp_path, log=tmp_path / "logs" / "monitor.log") as url:
        assert (await (await _get(session, f"{url}api/runs/-/state")).json())["empty"]
    with pytest.raises(aiohttp.ClientError):
        await _get(session, url)


def _children(word: str) -> list[int]:
    """Return this process's children whose command line contains ``word``."""
    pids = [int(pid) for file in Path("/proc/self/task").glob("*/children") for pid in file.read_text().split()]
    return [pid for pid in pids if word in Path(f"/proc/{pid}/cmdline").read_text()]


async def test_ctrl_c_in_a_terminal_does_not_reach_the_page_process(tmp_path: Path):
    async with run_monitor_process(tmp_path, log=tmp_path / "monitor.log"):
        (page,) = _children(str(tmp_path))
        assert os.getpgid(page) != os.getpgrp()


async def test_a_monitor_that_cannot_start_does_not_stop_the_run(tmp_path: Path):
    log = tmp_path / "monitor.log"
    async with run_monitor_process(tmp_path / "nothing", log=log) as url:
        assert url == ""
    assert "no run 'nothing' in " in log.read_text()

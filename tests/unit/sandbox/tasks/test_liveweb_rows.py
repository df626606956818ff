"""If these fail, a row of the web is read as something else than it says, or an answer is graded wrongly."""

from __future__ import annotations

import json
import socket
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from sandbox.grading.isolation.decision import Isolation, decide_isolation
from sandbox.tasks.dataset_catalog import BUILT_IN_CATALOG, load_labelled_dataset
from sandbox.tasks.formats.liveweb.generator import WEB_FAMILIES, generate_web_tasks, make_web_row
from sandbox.tasks.formats.liveweb.rows import FORMAT
from sandbox.tasks.formats.liveweb.web_actions import ACTION_TYPES, stop_answer
from sandbox.tasks.formats.liveweb.web_checks import SILENT_SITE_EXIT, is_right, main, read_answers
from sandbox.tasks.formats.registry import load_tasks
from sandbox.tasks.formats.rows import encode_row, read_row
from sandbox.tasks.problems import TaskProblems
from sandbox.tasks.sites.serve import SITES
from sandbox.tasks.sites.site_services import TOOLCHAIN_PYTHON
from sandbox.tasks.sites.web_app import serve_app
from sandbox.tasks.task import Task
from sandbox.tasks.task_network import NetworkMode
from sandbox.toolchain.in_container.layout import ENVIRONMENT
from sandbox.tools import BROWSER
from sandbox.validation.web_oracle import oracle_calls

LIVE: dict[str, Any] = {
    "task_id": 7,
    "start_url": "https://en.wikipedia.org/wiki/Oslo",
    "question": "When was Oslo founded?",
    "answer": {"number": 1040},
}
STOP: dict[str, Any] = {"type": "stop", "params": {"answer": "1040"}}
OURS: dict[str, Any] = {**LIVE, "start_url": "http://wiki:8000/", "sites": ["wiki"]}


def read(row: dict[str, Any]) -> tuple[Task | None, list[str]]:
    problems = TaskProblems(Path("rows.jsonl:1"))
    task = read_row(FORMAT, row, problems)
    return problems.loaded(task).task, [str(each) for each in problems.found]


@pytest.mark.parametrize("family", WEB_FAMILIES)
def test_a_generated_row_is_a_task_with_an_oracle_that_is_written_back_equal(family: str):
    row = json.loads(json.dumps(make_web_row(family, 3)))
    assert row == json.loads(json.dumps(make_web_row(family, 3)))
    task, found = read(row)
    assert task is not None, found
    assert (task.has_oracle, task.gradable, task.start_url) == (True, True, row["start_url"])
    assert [service.name for service in task.services] == row["sites"]
    assert encode_row(FORMAT, task) == row


def test_the_live_web_is_reached_through_the_proxy_at_the_named_hosts_alone():
    task, _ = read({**LIVE, "sites": ["en.wikipedia.org", "*.wikimedia.org"]})
    assert task is not None
    assert (task.id, task.services) == ("liveweb-7", ())
    assert (task.network.agent, task.network.verify) == (NetworkMode.PROXY, NetworkMode.NONE)
    assert task.network.allowed_hosts == ("en.wikipedia.org", "*.wikimedia.org")
    alone, _ = read(LIVE)
    assert alone is not None
    assert alone.network.allowed_hosts == ("en.wikipedia.org",)


def test_an_agent_is_told_neither_the_answer_nor_the_sites_secret():
    task, _ = read(make_web_row("shop-buy", 1))
    assert task is not None
    secret = json.loads(task.tests["web_task.json"])["secret"]
    seen = [task.instruction, *task.env.values(), *task.agent_env.values(), *map(str, task.files)]
    assert secret == task.services[0].env["SITE_SECRET"]
    assert not any(secret in text for text in seen)


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"start_url": None}, "the row has no start_url"),
    ({"start_url": "ftp://wiki/"}, "row: start_url (must be http://HOST/… or https://HOST/…, not 'ftp://wiki/')"),
    ({"start_url": "http:///x"}, "row: start_url (must be http://HOST/… or https://HOST/…, not 'http:///x')"),
    ({"task_id": [7]}, "row: task_id (must be a valid integer or must be a valid string)"),
    ({"answer": {"exakt": "x"}}, "unknown check 'exakt' (it is one of exact, number, set; did you mean 'exact'?)"),
    ({"answer": {"exact": "x", "number": 1}}, "the answer names 2 checks"),
    ({"answer": {"number": "many"}}, "row: answer: number"),
    ({"answer": {"number": 10**400}}, "row: answer: number"),
    ({"start_url": "http://[wiki:8000/"}, "row: start_url"),
    ({"start_url": "http://wiki:80001/"}, "row: start_url"),
    ({"start_url": "http://wiki:80000/"}, "row: start_url"),
    ({"start_url": "http://wiki:8000.example.org/"}, "row: start_url"),
    ({"start_url": "http://me@wiki:8000/"}, "is not on http://wiki:8000/"),
    ({"start_url": "https://example.org/", "sites": ["other.org"]}, "start_url is on example.org, which is not among"),
    ({"start_url": "https://example.org/", "sites": ["*.example.org"]}, "start_url is on example.org, which is not"),
    ({"start_url": "https://example.org:8443/", "sites": ["example.org"]}, "start_url is on example.org:8443, which"),
    ({"answer": None}, "neither answer, answers nor state"),
    ({"answers": {"a": {"exact": "x"}}}, "both answer and answers"),
    ({"sites": ["wikki"]}, "sites: 'wikki' is no site"),
    ({"sites": ["shop"]}, "start_url is on wiki, which is not among the sites"),
    ({"start_url": "http://wiki/"}, "start_url http://wiki/ is not on http://wiki:8000/"),
    ({"state": [{"site": "example.org", "sql": "SELECT 1", "rows": []}]}, "state: 'example.org' is not among"),
    ({"state": [{"site": "wiki", "sql": "SELEC x", "rows": []}]}, "wiki does not take 'SELEC x' (near"),
    ({"state": [{"site": "wiki", "sql": "SELECT x FROM towns", "rows": []}]}, "(no such table: towns"),
    ({"state": [{"site": "wiki", "sql": "SELECT x'00'", "rows": []}]}, "(Object of type bytes is not JSON"),
    ({"actions": [{"type": "clik"}, STOP]}, "no action has the type 'clik' (it is one of goto, click"),
    ({"actions": [{"type": "wait"}]}, "action 1 is wait (the last action, and no other, is stop"),
    ({"actions": [STOP, STOP]}, "action 1 is stop (the last action, and no other, is stop"),
    ({"actions": [{"type": "stop", "params": {"final": {}}}]}, "actions: stop has no answer"),
    ({"state": [{"site": "wiki", "query": "SELECT 1", "rows": []}]}, "row: state.0.query (unknown key)"),
]


@pytest.mark.parametrize(("change", "line"), WRONG)
def test_a_wrong_row_is_one_clear_line(change: dict[str, Any], line: str):
    task, found = read({**OURS, **change})
    assert task is None
    assert any(line in each for each in found), found


@pytest.mark.parametrize("site", ["example.org", "EXAMPLE.org:443", "*.org"])
def test_a_start_page_is_on_a_host_that_the_proxy_lets_through(site: str):
    assert read({**LIVE, "start_url": "https://example.org/x", "sites": [site]})[1] == []


def test_a_number_that_is_written_as_a_text_is_graded_as_a_number():
    task, _ = read({**OURS, "answer": {"number": "12"}})
    assert task is not None
    (expected,) = json.loads(task.tests["web_task.json"])["answers"].values()
    assert is_right("12", expected)


@pytest.mark.parametrize(
    ("params", "answer"),
    [
        ({"answer": "x"}, "x"),
        ({"answer": 26.8}, {"answer": 26.8}),
        ({"answers": {"a": 1}}, {"a": 1}),
        ({"final": {"answers": {"a": "x"}}}, {"a": "x"}),
    ],
)
def test_the_oracles_stop_gives_the_answer_in_every_form_that_an_agent_may_write(
    params: dict[str, Any], answer: str | dict[str, Any]
):
    task, _ = read({**OURS, "actions": [{"type": "stop", "params": params}]})
    assert task is not None
    (call,) = oracle_calls(task)
    assert (call.name, call.arguments) == ("answer", {"answer": answer})
    assert stop_answer(call.as_action()["params"]) == answer


def test_an_oracle_may_do_what_a_browser_can():
    assert set(ACTION_TYPES) == {*BROWSER, "stop"}


@pytest.mark.parametrize("answer", ["1040", "1041"])
@pytest.mark.parametrize("editor", ["ann", "bob"])
def test_a_task_with_an_answer_and_a_state_is_all_or_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], answer: str, editor: str
):
    specification: dict[str, Any] = {"answers": {"": {"number": 1040}}, "secret": "s", "workdir": str(tmp_path)}
    with serve_app(SITES["wiki"](0, "s"), ("127.0.0.1", 0)) as server:
        Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        url = f"http://127.0.0.1:{server.server_address[1]}/"
        specification["state"] = [{"url": url, "sql": "SELECT 'ann'", "rows": [[editor]]}]
        (tmp_path / "web_task.json").write_text(json.dumps(specification))
        (tmp_path / "answer.txt").write_text(answer)
        monkeypatch.setenv("TEST_DIR", str(tmp_path))
        main()
        server.shutdown()
    word = "PASSED" if (answer, editor) == ("1040", "ann") else "FAILED"
    assert capsys.readouterr().out.endswith(f"short test summary info\n{word} answer\n{word} state\n")


OK = b"HTTP/1.1 200 OK\r\nContent-Length: "


@pytest.mark.parametrize(
    "reply",
    [
        b"",
        b"HTTP/1.1 200",
        b"not HTTP\r\n\r\n",
        OK + b'20\r\n\r\n{"rows": [["a',
        OK + b'12\r\n\r\n{"rows": [["a',
        OK + b'11\r\n\r\n{"rows": "\xc3',
        OK + b"0\r\n\r\n",
        b"HTTP/1.1 500 Internal Server Error\r\nContent-Length: 0\r\n\r\n",
        b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 99\r\n\r\n...",
    ],
)
def test_a_site_that_breaks_off_or_fails_is_no_grade(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], reply: bytes
):
    def answer_once(server: socket.socket) -> None:
        connection, _ = server.accept()
        with connection:
            connection.recv(1 << 16)
            connection.sendall(reply)

    with socket.create_server(("127.0.0.1", 0)) as server:
        answering = Thread(target=answer_once, args=(server,))
        answering.start()
        check: dict[str, Any] = {
            "url": f"http://127.0.0.1:{server.getsockname()[1]}/",
            "sql": "SELECT 1",
            "rows": [[1]],
        }
        specification: dict[str, Any] = {"answers": {}, "state": [check], "secret": "s", "workdir": str(tmp_path)}
        (tmp_path / "web_task.json").write_text(json.dumps(specification))
        monkeypatch.setenv("TEST_DIR", str(tmp_path))
        with pytest.raises(SystemExit) as ended:
            main()
        answering.join()
    assert ended.value.code == SILENT_SITE_EXIT
    assert capsys.readouterr().out.startswith("a site does not answer: ")


def test_rows_of_the_web_are_known_by_their_keys(tmp_path: Path):
    file = tmp_path / "rows.jsonl"
    file.write_text("\n".join(json.dumps(row) for row in (OURS, {key: LIVE[key] for key in ("task_id", "question")})))
    found = load_tasks(file)
    assert ([task.id for task in found.tasks], len(found.problems)) == (["liveweb-7"], 1)
    assert str(found.problems[0]).startswith(f"task {file}:2: the row has no start_url")


@pytest.mark.parametrize(
    ("given", "expected", "right"),
    [
        ("  the red  Lamp. ", {"exact": "The Red lamp"}, True),
        ("the red lamp or the blue one", {"exact": "the red lamp"}, False),
        ("It costs €1,204.50.", {"number": 1204.5}, True),
        ("3 of 4", {"number": 4}, False),
        ("12,5", {"number": 125}, False),
        ("1,2345", {"number": 12345}, False),
        ("1,234,567 km", {"number": 1234567}, True),
        ("\u22125", {"number": 5}, False),
        ("It is \u22125 °C.", {"number": -5}, True),
        (["\u22125"], {"number": -5}, True),
        ("web-03", {"number": -3}, False),
        ("web-03 has 8 cores", {"number": 8}, True),
        ("10-20", {"number": 10}, False),
        ("2026-11-29", {"number": 2026}, False),
        ("1e3", {"number": 1000}, True),
        (1e22, {"number": 1e22}, True),
        (".5", {"number": 0.5}, True),
        ("+5.", {"number": 5}, True),
        ("**64GB**", {"number": 64}, True),
        ("a 5-star one", {"number": 5}, True),
        ("Smith, John; Doe, Jane", {"set": ["Doe, Jane", "Smith, John"]}, True),
        ("Smith, John", {"set": ["Smith, John"]}, True),
        ("Smith; John", {"set": ["Smith, John"]}, False),
        ("Yes; no, never\nx", {"set": ["yes; no, never", "x"]}, True),
        (42, {"number": 42}, True),
        ("63.2", {"number": 63.167, "tolerance": 0.06}, True),
        ("63.3", {"number": 63.167, "tolerance": 0.06}, False),
        ("many", {"number": 3}, False),
        ("b, A", {"set": ["a", "b"]}, True),
        (["a", "b"], {"set": ["b", "a"]}, True),
        ("a; b; c", {"set": ["a", "b"]}, False),
        ("", {"set": ["a"]}, False),
    ],
)
def test_an_answer_is_right_by_its_check(given: object, expected: dict[str, Any], right: bool):
    assert is_right(given, expected) is right


@pytest.mark.parametrize(
    ("name", "text", "found"),
    [
        ("answer.txt", "12", {"": "12"}),
        ("answer.json", '{"answer1": "x"}', {"answer1": "x", "": "x"}),
        ("answer.json", '{"a": 1, "b": 2}', {"a": 1, "b": 2}),
        ("answer.json", "not JSON", {"": "not JSON"}),
        ("other.txt", "12", {}),
    ],
)
def test_the_answers_of_the_action_stop_are_read(tmp_path: Path, name: str, text: str, found: dict[str, object]):
    (tmp_path / name).write_text(text)
    assert read_answers(tmp_path) == found


def test_the_built_in_set_is_what_the_generator_makes():
    found = load_labelled_dataset(BUILT_IN_CATALOG, "longshore-web")
    assert (found.problems, found.tasks) == ((), tuple(generate_web_tasks(0, 18, 0)))
    assert {task.family for task in found.tasks} == set(WEB_FAMILIES)
    others = generate_web_tasks(0, 0, 2)
    assert len({task.id for task in (*found.tasks, *others)}) == 18 * 3


def test_sites_and_checks_run_on_the_toolchains_python():
    assert f"{ENVIRONMENT}/bin/python3" == TOOLCHAIN_PYTHON
    task, _ = read(OURS)
    assert task is not None
    assert decide_isolation(task.run_tests, task.tests) is Isolation.TOOLCHAIN
    for change in (("web_checks", "other"), ("-I -B", "-B"), ("-I -B /tests", "-I -B /app"), ("-I -B", "-I -B -m")):
        assert decide_isolation(task.run_tests.replace(*change), task.tests) is Isolation.IMAGE
    assert decide_isolation(task.run_tests, task.tests, verifier=False) is Isolation.IMAGE

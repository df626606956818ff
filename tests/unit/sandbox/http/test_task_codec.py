"""If these fail, a client's task arrives changed, or can request more of a host than its limits allow."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandbox.docker.network.private_networks import MAX_SERVICES
from sandbox.http.task_codec import MAX_FILES, TaskRefused, check_task_bounds, decode_task, encode_task
from sandbox.process_limits import ProcessLimit
from sandbox.tasks.task import Task
from sandbox.tasks.task_containers import ImageBuild, SharedFolder, TaskService
from sandbox.tasks.task_grading import GradingLevel
from sandbox.tasks.task_network import NetworkMode, TaskNetwork

TASK = Task(
    id="t",
    instruction="é\n",
    files={"/app/a": bytes(range(256))},
    build=ImageBuild({"Dockerfile": b"FROM x\xff", "a": b""}, executable=frozenset({"a"})),
    services=(TaskService("db", env={"A": "b"}, volumes=(SharedFolder("kept", "/a"),)),),
    volumes=(SharedFolder("kept", "/b", read_only=True),),
    network=TaskNetwork(agent=NetworkMode.PROXY, allowed_hosts=("a.example",)),
    grading=GradingLevel.COMMIT,
    agent_user="bob",
)
CONTEXT, DB = ImageBuild({"Dockerfile": b""}), TaskService("db")


def test_every_field_comes_back():
    assert decode_task(encode_task(TASK)) == TASK


@given(st.dictionaries(st.from_regex(r"/[a-z]{1,5}", fullmatch=True), st.binary()), st.text())
def test_bytes_and_text_come_back(files: dict[str, bytes], instruction: str):
    task = Task(id="t", instruction=instruction.encode(errors="replace").decode(), files=files)
    assert decode_task(encode_task(task)) == task


@pytest.mark.parametrize(
    "change",
    [
        {"id": "../x"}, {"id": ""}, {"workdir": "app"}, {"workdir": "/a/../b"}, {"files": {"etc/passwd": b""}},
        {"files": {"/a\0": b""}}, {"tests": {"../../x": b""}}, {"tests": {"/x": b""}}, {"env": {"A=B": "c"}},
        {"env": {"A": "\0"}}, {"memory_mb": 0}, {"memory_mb": 1 << 40}, {"cpus": -1.0}, {"pids": 0},
        {"test_timeout_s": 0.0}, {"agent_timeout_s": 1e9}, {"setup": "\0"},
        {"start_url": "file:///etc/passwd"}, {"start_url": "http://"},
        {"weights": {"test_one": 1e308}}, {"weights": {"test_one": -1.0}}, {"build_timeout_s": 0.0}, {"storage_mb": -1},
        {"volumes": (SharedFolder("a/b", "/a"),)}, {"volumes": (SharedFolder("a", "../a"),)},
        {"reports": ("x",)}, {"artifacts": ("/a/../../b",)}, {"solution_files": {"../x": b""}},
        {"network": TaskNetwork(allowed_hosts=("a b",))}, {"network": TaskNetwork(allowed_hosts=("a\r\nX: y",))},
    ],
    ids=str,
)  # fmt: skip
def test_a_field_beyond_the_hosts_limits_is_refused_by_name(change):
    with pytest.raises(TaskRefused, match=next(iter(change))):
        decode_task(encode_task(replace(TASK, **change)))


@pytest.mark.parametrize(
    ("where", "change"),
    [
        *(("files", {"files": {"Dockerfile": b"", path: b""}})
          for path in ("./Dockerfile", "a//b", "Dockerfile/.", "../x", "/etc/x", "a/../../x",
                       "a\0", "", "Dockerfile/b", "x" * 5000)),
        ("files", {"files": {"Dockerfile": b"", **{str(n): b"" for n in range(MAX_FILES)}}}),
        ("dockerfile", {"dockerfile": "../Dockerfile"}), ("dockerfile", {"dockerfile": "absent"}),
        ("executable", {"executable": frozenset({"../x"})}), ("args", {"args": {"A B": ""}}),
        ("args", {"args": {"A": "\0"}}), ("target", {"target": "\0"}),
    ],
    ids=lambda value: str(value)[:40],
)  # fmt: skip
def test_a_build_that_leaves_its_context_or_has_no_bound_is_refused_by_name(where: str, change: dict[str, Any]):
    bad = replace(CONTEXT, **change)
    with pytest.raises(TaskRefused, match=rf"limits: build\.{where}"):
        decode_task(encode_task(replace(TASK, build=bad)))
    with pytest.raises(TaskRefused, match=rf"limits: services\.1\.build\.{where}"):
        decode_task(encode_task(replace(TASK, services=(DB, TaskService("web", build=bad)))))


def test_a_build_that_is_too_large_is_refused(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("sandbox.http.task_codec.MAX_CONTEXT_BYTES", 10)
    with pytest.raises(TaskRefused, match=r"build\.files"):
        check_task_bounds(replace(TASK, build=ImageBuild({"Dockerfile": b"x" * 11})))


@pytest.mark.parametrize(
    "change",
    [
        {"name": ""}, {"name": "../db"}, {"name": "a b"}, {"name": "a.b"}, {"name": "-a"}, {"name": "x" * 64},
        {"image": "x\0"}, {"image": "x@/../../containers"}, {"image": "a/../b"}, {"image": "-x"},
        {"command": ("a\0",)}, {"command": ("a",) * 2000}, {"entrypoint": ("a\0",)}, {"user": "a" * 200},
        {"workdir": "a"}, {"hostname": "a b"}, {"ulimits": (ProcessLimit("core", -1, -1),)}, {"env": {"A=B": ""}},
        {"healthcheck": "\0"}, {"memory_mb": 0}, {"cpus": 1e9},
    ],
    ids=str,
)  # fmt: skip
def test_a_service_that_asks_for_too_much_is_refused_by_name(change: dict[str, Any]):
    with pytest.raises(TaskRefused, match=rf"limits: services\.0\.{next(iter(change))}"):
        decode_task(encode_task(replace(TASK, services=(replace(DB, **change),))))


@pytest.mark.parametrize(
    "services", [(DB, DB), tuple(TaskService(f"s{n}") for n in range(MAX_SERVICES + 1))], ids=["twice", "many"]
)
def test_too_many_or_duplicate_services_are_refused(services: tuple[TaskService, ...]):
    with pytest.raises(TaskRefused, match=r"limits: services$"):
        decode_task(encode_task(replace(TASK, services=services)))


def test_no_task_can_ask_for_a_capability():
    with pytest.raises(TaskRefused, match="capabilities"):
        decode_task({**encode_task(TASK), "capabilities": ["SYS_PTRACE"]})


@pytest.mark.parametrize("value", [None, 1, [], "x", {}, {"id": 1, "instruction": ""}, {**encode_task(TASK), "new": 1}])
def test_a_value_that_is_not_a_task_is_refused(value: object):
    with pytest.raises(TaskRefused, match="not a valid task"):
        decode_task(value)


def test_a_reward_without_end_that_a_step_needs_is_refused():
    step = {"name": "a", "instruction": "b", "min_rewards": {"reward": float("inf")}}
    value = encode_task(Task("t", "a")) | {"steps": [step]}
    with pytest.raises(TaskRefused, match="min_rewards"):
        decode_task(value)

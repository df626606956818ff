"""A task that a client sends arrives as another, or asks a host for what it may not have, when this fails."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandbox.task_codec import TaskRefused, decode_task, encode_task
from sandbox.tasks.task import GradingLevel, ImageBuild, Network, NetworkMode, Service, Task

TASK = Task(
    id="t",
    instruction="é\n",
    files={"/app/a": bytes(range(256))},
    build=ImageBuild({"Dockerfile": b"FROM x\xff"}, executable=frozenset({"a"})),
    services=(Service("db", env={"A": "b"}),),
    network=Network(agent=NetworkMode.PROXY, allowed_hosts=("a.example",)),
    grading=GradingLevel.COMMIT,
)


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
    ],
    ids=str,
)  # fmt: skip
def test_what_a_host_does_not_give_is_refused_by_name(change):
    with pytest.raises(TaskRefused, match=next(iter(change))):
        decode_task(encode_task(replace(TASK, **change)))


@pytest.mark.parametrize("value", [None, 1, [], "x", {}, {"id": 1, "instruction": ""}, {**encode_task(TASK), "new": 1}])
def test_what_is_no_task_is_refused(value: object):
    with pytest.raises(TaskRefused, match="no task"):
        decode_task(value)

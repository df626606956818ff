"""If these fail, an evaluation's attempts at SWE-SYNTH's bugs cannot be trained on, or say something else than was
graded."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from launch.data.conversations import parse_conversation, read_conversations
from launch.evaluation.results.swe_synth_samples import PATCH, TOOLS, build_sample
from launch.evaluation.results.trainable_messages import GAP, NoSample
from protocol.evaluation import AttemptRecord, AttemptUsage, AttemptVerdict
from protocol.events import JsonValue
from protocol.trajectory import EpisodeStatus, TestResult
from sandbox.tasks.formats.registry import load_tasks
from sandbox.tasks.formats.swe_bugs.bug_rows import FORMAT
from sandbox.tasks.problems import TaskProblems
from sandbox.tasks.task import Task
from tests.support.tasks.bug_rows import TESTS, bug_row

TASK = FORMAT.read(bug_row(), TaskProblems(Path("row")))
MESSAGES: list[JsonValue] = [
    {"role": "system", "content": "Mend it."},
    {"role": "user", "content": "It adds."},
    {"role": "assistant", "content": "THOUGHT: look\n```bash\nls\n```"},
]


def record(*passed: bool, family: str = "wrong-operator") -> AttemptRecord:
    tests = tuple(TestResult(name, good) for name, good in zip(TESTS, passed, strict=True))
    verdict = AttemptVerdict(all(passed), 0.25, sum(passed) / 2, EpisodeStatus.COMPLETED, tests=tests)
    return AttemptRecord(TASK.id, 0, family, 1.5, verdict, usage=AttemptUsage(3, 3, 1, 0, 40, 7))


def test_a_sample_is_in_the_form_of_its_document():
    sample = build_sample(TASK, record(False, True), {"messages": MESSAGES, PATCH: "diff"}, "m")
    assert sample == {
        "task_id": 7,
        "score": 0.0,
        "model": "m",
        "latency_ms": 1500,
        "extra": {
            "swe_instance_id": "instance_example__calc",
            "bug_types": ["wrong-operator"],
            "problem_statement": "It adds.",
            "fix_patch": "diff",
            "conversation": MESSAGES,
            "model_calls": 3,
            "usage": {"prompt_tokens": 40, "completion_tokens": 7, "total_tokens": 47},
            "all_passed": False,
            "all_result": "1/2",
            "target_tests": TESTS[:1],
            "target_result": "0/1",
            "missing_tests": TESTS[:1],
        },
    }


def test_samples_are_offline_data_and_rows_again(tmp_path: Path):
    samples = [
        build_sample(TASK, record(*passed), {"messages": MESSAGES, PATCH: "diff"}, "m")
        for passed in ((True, True), (True, False))
    ]
    file = tmp_path / "samples.jsonl"
    file.write_text("".join(f"{json.dumps(sample)}\n" for sample in samples))
    found = list(read_conversations(file))
    assert [each.score for each in found] == [1.0, 0.0]
    assert [message["role"] for message in found[0].messages] == ["system", "user", "assistant"]
    assert found[0].trained_messages == {2}
    (solved,) = load_tasks(file).tasks
    assert (solved.id, solved.instruction, solved.solution_files) == (TASK.id, TASK.instruction, {"fix.patch": b"diff"})


def test_only_attempts_with_a_verdict_and_a_whole_conversation_make_samples():
    whole: dict[str, JsonValue] = {"messages": MESSAGES}
    assert build_sample(Task("t", "Do it."), record(True, True), whole, "m") is None
    without = (
        build_sample(TASK, replace(record(True, True), verdict=None), whole, "m"),
        build_sample(TASK, record(True, True), {"messages": []}, "oracle"),
        build_sample(TASK, record(True, True), {**whole, GAP: "/v1/completions is not read"}, "m"),
        build_sample(TASK, record(True, True), {"messages": MESSAGES[2:]}, "m"),
    )
    assert [each.reason if isinstance(each, NoSample) else each for each in without] == [
        "there is no verdict",
        "there is no reply of a model",
        "the harness's conversation cannot be read: /v1/completions is not read",
        "no reply can be learned from",
    ]


texts = st.sampled_from(["", " ", "word"])


def call(name: str) -> JsonValue:
    return {"type": "function", "function": {"name": name, "arguments": {"command": "ls"}}}


calls = st.sampled_from(["", "shell"]).map(call)
replies = st.fixed_dictionaries(
    {"role": st.just("assistant"), "content": texts},
    optional={"reasoning_content": texts, "tool_calls": st.lists(calls, max_size=2), "train": st.booleans()},
)
others = st.fixed_dictionaries({"role": st.sampled_from(["system", "user", "tool"]), "content": texts})


@given(st.lists(replies | others, max_size=8))
def test_every_sample_is_a_record_that_can_be_trained(messages: list[JsonValue]):
    sample = build_sample(TASK, record(True, True), {"messages": messages}, "m")
    if isinstance(sample, dict):
        assert parse_conversation(json.loads(json.dumps(sample)), "sample").trained_messages
    else:
        assert isinstance(sample, NoSample)


def test_what_cannot_be_trained_is_left_out_and_the_rest_kept():
    messages: list[JsonValue] = [
        {"role": "assistant", "content": "Hello."},
        *MESSAGES[:2],
        {"role": "assistant", "content": "", "reasoning_content": "hm"},
        {"role": "assistant", "content": "two", "tool_calls": [call(""), call("shell")]},
        {"role": "tool", "content": "of none"},
        {"role": "tool", "content": "of shell"},
        {"role": "assistant", "content": "done"},
        {"role": "user", "content": "Go on."},
        {"role": "assistant", "content": ""},
    ]
    sample: Any = build_sample(TASK, record(True, True), {"messages": messages}, "m")
    assert sample["extra"]["conversation"] == [
        *MESSAGES[:2],
        {
            "role": "assistant",
            "content": "two",
            "reasoning_content": "hm",
            "tool_calls": [call("shell")],
            "train": False,
        },
        {"role": "tool", "content": "of shell"},
        {"role": "assistant", "content": "done"},
        {"role": "user", "content": "Go on."},
    ]


def test_a_harness_that_calls_tools_makes_samples_with_their_schemas(tmp_path: Path):
    call: JsonValue = {"type": "function", "function": {"name": "shell", "arguments": {"command": "ls"}}}
    messages: list[JsonValue] = [*MESSAGES[:2], {"role": "assistant", "content": "", "tool_calls": [call]}]
    tool: JsonValue = {"type": "function", "function": {"name": "shell", "parameters": {}}}
    whole: dict[str, JsonValue] = {"messages": messages, TOOLS: [tool]}
    file = tmp_path / "samples.jsonl"
    file.write_text(json.dumps(build_sample(TASK, record(True, True), whole, "m")))
    (found,) = read_conversations(file)
    assert (found.tools, found.messages[-1].get("tool_calls")) == ((tool,), [call])

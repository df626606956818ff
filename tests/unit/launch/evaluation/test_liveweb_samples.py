"""If these fail, what an agent did in a browser cannot be trained on as LIVEWEB's samples are."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from launch.data.conversations import parse_conversation, read_conversations
from launch.evaluation.results.liveweb_samples import build_liveweb_sample
from launch.evaluation.results.trainable_messages import NoSample
from protocol.evaluation import AttemptRecord, AttemptVerdict
from protocol.events import JsonValue
from protocol.trajectory import EpisodeStatus
from sandbox.tasks.task import Task

TASK = Task("liveweb-7", "When was Oslo founded?", start_url="https://en.wikipedia.org/wiki/Oslo")
VERDICT = AttemptVerdict(True, 1.0, 1.0, EpisodeStatus.COMPLETED, {}, ())
RECORD = AttemptRecord(TASK.id, 0, "", 1.0, VERDICT)
STOP = '```json\n{"action":{"type":"stop","params":{"answer":"1040"}}}\n```'
MESSAGES: Any = [
    {"role": "system", "content": "Act."},
    {"role": "user", "content": "When was Oslo founded?"},
    {"role": "assistant", "content": "I look. " + STOP.replace("stop", "read")},
    {"role": "user", "content": "URL: …"},
    {"role": "assistant", "content": STOP},
]


def test_a_sample_is_trained_on_as_the_attempt_was_written(tmp_path: Path):
    sample = build_liveweb_sample(TASK, RECORD, {"messages": MESSAGES})
    assert isinstance(sample, dict)
    assert (sample["task_id"], sample["score"]) == (7, 1.0)
    steps: Any = sample["trajectory"]
    assert steps[-1] == {
        "observation": "URL: …",
        "action": {"type": "stop", "params": {"answer": "1040"}},
    }
    file = tmp_path / "samples.jsonl"
    file.write_text(json.dumps(sample))
    (read,) = read_conversations(file)
    assert [dict(message) for message in read.messages] == MESSAGES[1:]
    assert (read.score, read.trained_messages) == (1.0, {1, 3})


def test_the_score_is_the_share_of_right_answers_whatever_the_reward_adds():
    verdict = AttemptVerdict(False, 0.29, 0.5, EpisodeStatus.COMPLETED, {"process": 0.04}, ())
    sample = build_liveweb_sample(TASK, AttemptRecord(TASK.id, 0, "", 1.0, verdict), {"messages": MESSAGES})
    assert isinstance(sample, dict)
    assert sample["score"] == 0.5


def test_only_attempts_in_a_browser_with_a_verdict_are_samples():
    conversation: dict[str, Any] = {"messages": MESSAGES}
    assert build_liveweb_sample(Task("a", "b"), RECORD, conversation) is None
    assert isinstance(build_liveweb_sample(TASK, AttemptRecord(TASK.id, 0, "", 1.0), conversation), NoSample)
    assert isinstance(build_liveweb_sample(TASK, RECORD, {"messages": []}), NoSample)
    call: JsonValue = {"type": "function", "function": {"name": "click", "arguments": {}}}
    calling: list[JsonValue] = [*MESSAGES[:2], {"role": "assistant", "content": "", "tool_calls": [call]}]
    found = build_liveweb_sample(TASK, RECORD, {"messages": calling})
    assert isinstance(found, NoSample)
    assert "called functions" in found.reason


def test_a_reply_without_text_is_no_step():
    messages: list[JsonValue] = [{"role": "assistant", "content": ""}, {"role": "user", "content": "Go on."}]
    sample = build_liveweb_sample(TASK, RECORD, {"messages": [*MESSAGES[:2], *messages, *MESSAGES[2:]]})
    assert isinstance(sample, dict)
    assert parse_conversation(sample, "sample").trained_messages

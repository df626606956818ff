"""Published harnesses as tests play them: installed into this machine's home of longshore, where they stay for the next
test, with a scripted policy that makes hello.txt."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import pytest

from actors.agents.hermes import HERMES
from actors.engines.messages import GenerateReply, GenerateRequest, OnPartialReply
from actors.harnesses.catalog import find_harness
from actors.harnesses.installation import install_harness
from actors.rollout.sandbox_terminal import SandboxTerminal
from actors.rollout.settings import EpisodeSettings, HarnessSettings
from actors.tokens.chat_template import Tokenizer
from actors.workers.harness_runner import HarnessRunner
from protocol.errors import UserError
from protocol.trajectory import RolloutRequest, Trajectory
from sandbox.host_record import SandboxHost
from sandbox.providers.interface import open_sandbox
from sandbox.tasks.task import Task
from tests.support.actors.episodes import REQUEST, episode_context, terminal_limits
from tests.support.actors.observers import FakeObserver
from tests.support.fakes.fake_policy import FakeTokenizer, make_reply
from tests.support.sandbox.provider_kinds import open_provider

_UNREACHABLE = ("ENOTFOUND", "EAI_AGAIN", "ECONNREFUSED", "ETIMEDOUT", "ENETUNREACH", "error sending request")
"""How npm and uv say that they do not reach a registry."""
SETTINGS = EpisodeSettings(
    max_turns=40, max_new_tokens=400, context_tokens=400_000, nominal_tokens_per_s=1000.0, time_limit_s=300.0
)
INSTRUCTION = """-v @hello: it's $HOME and "quoted" `id`\nmake hello.txt"""
"""Nothing of it is an option, a file or a variable."""
CREATE = "echo hello > /app/hello.txt"


class ToolCall(NamedTuple):
    name: str
    arguments: Mapping[str, object]


def typed(*commands: Mapping[str, object]) -> str:
    """Return Terminus 2's JSON that types commands and ends the task, which it asks for twice."""
    return json.dumps({"analysis": "", "plan": "", "commands": commands, "task_complete": True})


CALLS = {
    "claude-code": ToolCall("Bash", {"command": CREATE, "description": "Create the file"}),
    "codex": ToolCall("exec_command", {"cmd": CREATE}),
    "opencode": ToolCall("bash", {"command": CREATE, "description": "Create the file"}),
    "pi": ToolCall("bash", {"command": CREATE}),
    "mini-swe-agent": ToolCall("bash", {"command": CREATE}),
    "openai-agents": ToolCall("shell", {"command": CREATE}),
    "smolagents": ToolCall("shell", {"command": CREATE}),
    "camel": ToolCall("shell", {"command": CREATE}),
    "openhands": ToolCall("terminal", {"command": CREATE}),
    "terminus-2": typed({"keystrokes": f"{CREATE}\n"}),
}
"""How each harness's own shell is called: by a tool, or by a reply's text."""
DONE = "It is done."
ENDS = dict.fromkeys(CALLS, DONE) | {
    "mini-swe-agent": ToolCall("bash", {"command": "echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT"}),
    "smolagents": ToolCall("final_answer", {"answer": DONE}),
    "terminus-2": typed(),
}
"""Replies that end the task; most harnesses end it after any reply without a call."""


@dataclass
class FakeTaskPolicy:
    """Calls a tool once, then ends the task with ``end``; a conversation that is not its work gets a title."""

    call: ToolCall | str
    end: ToolCall | str = DONE
    tokenizer: Tokenizer = field(default_factory=FakeTokenizer)
    logprob: float = -0.5
    """Log-probability of each token."""
    observer: FakeObserver = field(default_factory=FakeObserver)
    prompts: list[list[int]] = field(default_factory=list[list[int]])
    replies: list[list[int]] = field(default_factory=list[list[int]])

    async def generate(self, request: GenerateRequest, watch: OnPartialReply | None = None) -> GenerateReply:
        del watch
        text = call_text(self.choose_reply(request.input_ids))
        ids = [*self.tokenizer.encode(text, add_special_tokens=False), self.tokenizer.eos_token_id]
        self.prompts.append(request.input_ids)
        self.replies.append(ids)
        return replace(make_reply(ids, 1), logprobs=[self.logprob] * len(ids), finish="stop")

    def choose_reply(self, prompt: Sequence[int]) -> ToolCall | str:
        if not self.is_work(prompt):
            return "A title"
        return self.end if any(map(self.is_work, self.prompts)) else self.call

    def text_of(self, ids: Sequence[int]) -> str:
        return self.tokenizer.decode(ids, skip_special_tokens=False)

    def is_work(self, prompt: Sequence[int]) -> bool:
        """Say whether a prompt has tools, or a terminal to type into."""
        text = self.text_of(prompt)
        return "<tools>" in text or "\nCurrent terminal state:\n" in text


def call_text(call: ToolCall | str) -> str:
    return call if isinstance(call, str) else f"<tool_call>{json.dumps(call._asdict())}</tool_call>"


def install_or_skip(host: SandboxHost, name: str) -> None:
    """Install a harness; skip the test if its package registry cannot be reached."""
    try:
        install_harness(host.home, find_harness(name), print)
    except UserError as error:
        if any(word in str(error) for word in _UNREACHABLE):
            pytest.skip(f"{name} is not installed, and its package registry cannot be reached: {error}")
        raise


def hello_task(image: str) -> Task:
    return Task(
        id="hello",
        instruction=INSTRUCTION,
        image=image,
        workdir="/app",
        run_tests="""#!/bin/sh
echo "==== short test summary info ===="
if test "$(cat /app/hello.txt)" = hello; then echo "PASSED test_hello"; else echo "FAILED test_hello"; fi
if ls -d /tmp/harness-*; then echo "FAILED test_clean"; else echo "PASSED test_clean"; fi
if ps | grep -v grep | grep -qE "/.hns/|sleep 600"; then echo "FAILED test_alone"; else echo "PASSED test_alone"; fi
""",
        expected_tests=("test_hello", "test_clean", "test_alone"),
        test_timeout_s=60.0,
    )


async def play_harness(
    host: SandboxHost,
    policy: FakeTaskPolicy,
    name: str,
    task: Task,
    episode: EpisodeSettings = SETTINGS,
    request: RolloutRequest = REQUEST,
    kind: str = "local",
) -> Trajectory:
    """Play the task with a harness, which is installed if it is missing; no container is left."""
    await asyncio.to_thread(install_or_skip, host, name)
    settings = HarnessSettings(harness=name)
    async with (
        open_provider(host, kind, settings.agent_programs) as provider,
        HarnessRunner(settings, policy.tokenizer, policy.generate, HERMES) as harnesses,
        open_sandbox(provider, task, 600.0) as sandbox,
    ):
        terminal = SandboxTerminal(sandbox, task, terminal_limits(command_s=60.0, grade_s=60.0))
        context = episode_context(episode, task, request=request, observer=policy.observer)
        return await harnesses.run_episode(context, terminal)

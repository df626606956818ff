"""If these fail, a model at a URL is shown another talk than it had, or its server's trouble becomes its own."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from actors.agents.hermes import HermesAgent
from actors.agents.prompt import PromptTemplate
from actors.engines.messages import EngineUnavailable
from actors.rollout.agent_loop import AgentLoop
from actors.rollout.chat_policy import ChatEndpoint, ChatEndpointSettings, ChatPolicy, ChatRefusedError
from actors.rollout.settings import EpisodeSettings
from protocol.errors import UserError
from protocol.trajectory import EpisodeStatus
from sandbox.tasks.task import Task
from sandbox.tools import SHELL_ONLY
from tests.support.actors.observers import FakeObserver
from tests.support.fakes.fake_chat import (
    ChatErrorReply,
    FakeChat,
    MessageReply,
    ToolCallReply,
    scripted_replies,
    serve_fake_chat,
)
from tests.support.fakes.fake_judge import unreachable_url
from tests.support.fakes.fake_terminal import FakeTerminal

CALL = '<tool_call>{"name": "shell_exec", "arguments": {"command": "ls"}}</tool_call>'
AGENT = HermesAgent(PromptTemplate("sys"), SHELL_ONLY, SHELL_ONLY)
TASK = Task("t", "list")
SETTINGS = EpisodeSettings(
    max_turns=4,
    max_malformed=2,
    max_new_tokens=100,
    context_tokens=4000,
    temperature=1.0,
    nominal_tokens_per_s=50.0,
    time_limit_s=60.0,
)


def endpoint(url: str, deadline_s: float = 30.0, thinking: bool | None = None) -> ChatEndpoint:
    return ChatEndpoint(ChatEndpointSettings(url=url, model="tiny", deadline_s=deadline_s, thinking=thinking))


async def acted(
    chat: FakeChat,
    terminal: FakeTerminal | None = None,
    *,
    context: int = 4000,
    deadline_s: float = 30.0,
    thinking: bool | None = None,
) -> tuple[EpisodeStatus, AgentLoop]:
    tools = [tool.schema for tool in AGENT.offered_tools.values()]
    async with endpoint(chat.url, deadline_s, thinking) as talking:
        policy = ChatPolicy(
            talking, AGENT.opening_messages(TASK), tools=tools, context_tokens=context, temperature=0.5, seed=7
        )  # fmt: skip
        acting = AgentLoop(AGENT, lambda _: policy, terminal or FakeTerminal(), SETTINGS, FakeObserver())
        return await acting.play(TASK), acting


async def test_replies_and_tool_outputs_form_one_conversation() -> None:
    async with serve_fake_chat(scripted_replies(CALL, "done")) as chat:
        status, acting = await acted(chat)
    first, second = chat.received_requests
    assert status is EpisodeStatus.COMPLETED
    assert [message["role"] for message in second["messages"]] == ["system", "user", "assistant", "user"]
    assert second["messages"][3]["content"] == "<tool_response>\nout\n</tool_response>"
    assert (first["model"], first["max_tokens"], first["temperature"], second["seed"]) == ("tiny", 100, 0.5, 8)
    assert first["tools"][0]["function"]["name"] == "shell_exec"
    assert (acting.sampled_tokens, len(acting.transcript.turns)) == (14, 2)
    assert acting.prompt_tokens > 0


@pytest.mark.parametrize("thinking", [None, True, False])
async def test_the_thinking_mode_is_passed_to_the_servers_template(thinking: bool | None) -> None:
    """Otherwise a recipe without thoughts would be evaluated with them, under its name."""
    async with serve_fake_chat(scripted_replies("done")) as chat:
        await acted(chat, thinking=thinking)
    template_options = None if thinking is None else {"enable_thinking": thinking}
    assert chat.received_requests[0].get("chat_template_kwargs") == template_options


async def test_calls_parsed_by_the_server_are_run_and_answered_by_id() -> None:
    calls = ToolCallReply(("shell_exec", "shell_exec"), ('{"command": "ls"}', "{not json"))
    terminal = FakeTerminal()
    async with serve_fake_chat(scripted_replies(calls, "done")) as chat:
        status, acting = await acted(chat, terminal)
    messages = chat.received_requests[1]["messages"]
    assert (status, terminal.calls, acting.transcript.turns[0].malformed) == (EpisodeStatus.COMPLETED, 1, True)
    assert [each["id"] for each in messages[2]["tool_calls"]] == ["c0", "c1"]
    assert [(each["role"], each["tool_call_id"]) for each in messages[3:]] == [("tool", "c0"), ("tool", "c1")]
    assert "not valid JSON" in messages[4]["content"]


@pytest.mark.parametrize("command", ["ls", "grep '</tool_call>' agent.py"])
@pytest.mark.parametrize("written", [json.dumps, dict])
async def test_calls_without_ids_and_with_arguments_as_objects_are_run_in_order(
    command: str, written: Callable[[dict[str, str]], object]
) -> None:
    """Ollama's and others' servers send them so."""
    arguments = tuple(written({"command": each}) for each in (command, "second"))
    calls = ToolCallReply(("shell_exec", "shell_exec"), arguments, has_ids=False)
    terminal = FakeTerminal()
    async with serve_fake_chat(scripted_replies(calls, "done")) as chat:
        status, acting = await acted(chat, terminal)
    assert (status, acting.transcript.turns[0].malformed) == (EpisodeStatus.COMPLETED, False)
    assert [call.command for call in acting.transcript.turns[0].calls] == [command, "second"]
    reply, *results = chat.received_requests[1]["messages"][2:]
    assert [call["id"] for call in reply["tool_calls"]] == [each["tool_call_id"] for each in results]


async def test_a_full_context_is_a_policy_outcome_wherever_it_is_detected() -> None:
    full = ChatErrorReply(400, "maximum context length is 4096")
    async with serve_fake_chat(scripted_replies(CALL, full)) as chat:
        assert (await acted(chat))[0] is EpisodeStatus.CONTEXT_LIMIT
    async with serve_fake_chat(scripted_replies(CALL)) as chat:
        status, _ = await acted(chat, FakeTerminal("x" * 9000), context=2000)
        assert (status, len(chat.received_requests)) == (EpisodeStatus.CONTEXT_LIMIT, 1)


async def test_an_endpoint_that_refuses_the_first_prompt_is_no_policy_outcome() -> None:
    """Otherwise a server with too short a context would score 0."""
    async with serve_fake_chat(scripted_replies(ChatErrorReply(400, "maximum context length is 512"))) as chat:
        with pytest.raises(ChatRefusedError, match=r"first prompt \(400: maximum context length is 512\).*= 4000"):
            await acted(chat)


async def test_a_call_in_the_apis_older_form_is_run() -> None:
    older = MessageReply({"content": None, "function_call": {"name": "shell_exec", "arguments": '{"command": "ls"}'}})
    async with serve_fake_chat(scripted_replies(older, "done")) as chat:
        _, acting = await acted(chat)
    assert [call.command for call in acting.transcript.turns[0].calls] == ["ls"]
    reply, result = chat.received_requests[1]["messages"][2:]
    assert reply["tool_calls"][0]["id"] == result["tool_call_id"]


async def test_content_in_parts_is_read_as_its_text() -> None:
    parts = [{"type": "thinking", "text": "hm"}, {"type": "text", "text": "all "}, {"type": "text", "text": "done"}]
    async with serve_fake_chat(scripted_replies(MessageReply({"content": parts}))) as chat:
        _, acting = await acted(chat)
    assert acting.transcript.last_content == "all done"


async def test_a_429_or_503_is_retried() -> None:
    answers = iter([ChatErrorReply(429), ChatErrorReply(503), "done"])
    async with serve_fake_chat(lambda _: next(answers)) as chat:
        assert (await acted(chat))[0] is EpisodeStatus.COMPLETED
    assert len(chat.received_requests) == 3


async def test_a_refused_request_is_not_retried() -> None:
    async with serve_fake_chat(scripted_replies(ChatErrorReply(404, "no such model"))) as chat:
        with pytest.raises(ChatRefusedError, match=r"refuses \(404\): no such model"):
            await acted(chat)
    assert len(chat.received_requests) == 1


async def test_a_server_that_does_not_reply_is_an_infrastructure_failure() -> None:
    async with serve_fake_chat(scripted_replies("done")) as chat:
        chat.may_reply.clear()
        with pytest.raises(EngineUnavailable, match=r"no reply within 0\.2 s"):
            await acted(chat, deadline_s=0.2)
    assert len(chat.received_requests) == 1


async def test_an_unreachable_server_and_a_missing_key_are_reported_by_the_model_list() -> None:
    async with endpoint(unreachable_url()) as talking:
        with pytest.raises(UserError, match="no server answers at"):
            await talking.list_models()
    async with serve_fake_chat(scripted_replies("done"), key="secret") as chat, endpoint(chat.url) as talking:
        with pytest.raises(UserError, match="--key-file"):
            await talking.list_models()

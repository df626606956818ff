"""Requests in the order and the shape in which published harnesses send them.  If these fail, the policy is trained to
write titles and replies that nobody used, or a part of the agent's work has no loss."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from protocol.trajectory import ASIDES, ReplyRole, TurnKind
from tests.support.actors.gateways import GatewayClients, open_gateway

WORK, AUXILIARY, DISCARDED = ReplyRole.WORK, ReplyRole.AUXILIARY, ReplyRole.DISCARDED


def call_of(command: str) -> str:
    return f'<tool_call>{{"name": "bash", "arguments": {{"command": "{command}"}}}}</tool_call>\x01'


CALL = call_of("echo hello > hello.txt")
PARAMETERS = {"type": "object", "properties": {"command": {"type": "string"}}}
BASH = {"type": "function", "function": {"name": "bash", "parameters": PARAMETERS}}
WORKER = {"role": "system", "content": "You are a coding agent. Use the tools."}
TITLER = {"role": "system", "content": "You write titles. Answer with nothing but a title."}
TASK = {"role": "user", "content": "make hello.txt"}


class HarnessClient:
    """Sends bodies of the three APIs."""

    def __init__(self, made: GatewayClients) -> None:
        self._made = made

    async def _post(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        made = self._made
        headers = {"authorization": f"Bearer {made.gateway.api_key(made.session)}"}
        answer = await made.http.post(made.gateway.url + path, json={"model": "m", **body}, headers=headers)
        assert answer.status_code == 200, answer.text
        return answer.json()

    async def chat(self, *messages: dict[str, Any], tools: tuple[object, ...] = (BASH,)) -> dict[str, Any]:
        """Ask for a chat completion; the message of the reply."""
        body = {"messages": messages, **({"tools": tools} if tools else {})}
        return (await self._post("/v1/chat/completions", body))["choices"][0]["message"]

    async def message(self, **body: Any) -> list[dict[str, Any]]:
        """Ask for an Anthropic message; the blocks of the reply."""
        return (await self._post("/v1/messages", {"max_tokens": 200, **body}))["content"]

    async def respond(self, **body: Any) -> list[dict[str, Any]]:
        """Ask for a response; its items."""
        return (await self._post("/v1/responses", {"store": False, **body}))["output"]

    def ask_title(self):
        """Ask for a title as opencode does."""
        return self.chat(TITLER, {"role": "user", "content": "Title this conversation:\n"}, TASK, tools=())

    async def work(self) -> None:
        """Do the task in two requests."""
        reply = await self.chat(WORKER, TASK)
        await self.chat(WORKER, TASK, reply, result_of(reply))

    @property
    def roles(self) -> list[ReplyRole]:
        """The roles of the replies in the order of the segments; those and no others are without loss."""
        segments = self._made.session.segments()
        turns = [(segment, turn) for segment in segments for turn in segment.turns if turn.kind is TurnKind.MODEL]
        for segment, turn in turns:
            assert set(segment.loss_mask[turn.start : turn.end]) == {int(turn.role not in ASIDES)}
        return [turn.role for _, turn in turns]


def result_of(reply: dict[str, Any]) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": reply["tool_calls"][0]["id"], "content": ""}


async def test_a_title_before_the_work_is_auxiliary_and_has_no_loss() -> None:
    async with open_gateway("Making a text file\x01", CALL, "Done.\x01") as made:
        harness = HarnessClient(made)
        await harness.ask_title()
        assert harness.roles == [WORK]
        await harness.work()
        assert harness.roles == [AUXILIARY, WORK, WORK]
        title, work = made.session.segments()
        assert not title.loss_mask.any()
        assert [turn.kind for turn in work.turns] == [
            *(TurnKind.PROMPT, TurnKind.MODEL, TurnKind.OBSERVATION, TurnKind.MODEL)
        ]


async def test_a_title_that_comes_last_is_neither_the_answer_nor_a_turn_with_a_reward() -> None:
    async with open_gateway(CALL, "42\x01", "make hello.txt\x01") as made:
        harness = HarnessClient(made)
        await harness.work()
        await harness.ask_title()
        assert harness.roles == [WORK, WORK, AUXILIARY]
        assert made.session.last_content == "42"
        assert [turn.text for turn in made.session.turns()] == ["", "42"]
        assert made.session.turn_order == [0, 1]


async def test_checks_of_claude_code_are_auxiliary_and_a_helper_whose_result_is_used_is_work() -> None:
    """A request of one word tests the quota; another model names the topic, and a third reads a page for the agent."""
    tools = [{"name": "Bash", "input_schema": PARAMETERS}, {"name": "WebFetch", "input_schema": PARAMETERS}]
    system, task = [{"type": "text", "text": "You are an agent."}], {"role": "user", "content": "read the page"}
    fetch = '<tool_call>{"name": "WebFetch", "arguments": {"command": "page"}}</tool_call>\x01'
    topic, answer = '{"isNewTopic": true,\n "title": "Reading"}\x01', "The page says:\nseven colours, in this order\x01"
    async with open_gateway("a\x01", topic, fetch, answer, "Done.\x01") as made:
        harness = HarnessClient(made)
        await harness.message(messages=[{"role": "user", "content": "quota"}], max_tokens=1)
        await harness.message(system="Is this a new topic? Answer in JSON.", messages=[task])
        call = await harness.message(system=system, tools=tools, messages=[task])
        page = [{"role": "user", "content": "Web page:\n---\nred, green\n---\nWhich colours?"}]
        read = await harness.message(system="", messages=page)
        result = {"type": "tool_result", "tool_use_id": call[-1]["id"], "content": f"Result: {read[0]['text']}"}
        messages = [task, {"role": "assistant", "content": call}, {"role": "user", "content": [result]}]
        await harness.message(system=system, tools=tools, messages=messages)
        assert sorted(harness.roles) == [WORK, WORK, WORK, AUXILIARY, AUXILIARY]


async def test_a_summary_with_which_codex_goes_on_is_work_and_so_is_one_at_the_end() -> None:
    """It asks with the instructions of its work, and without tools, and begins a new history with the summary."""
    tools = [{"type": "function", "name": "bash", "parameters": PARAMETERS}]
    task, ask = ({"type": "message", "role": "user", "content": text} for text in ("task", "Write a handoff summary."))
    async with open_gateway(CALL, "It exists.\x01", "Done.\x01", "All is done.\x01") as made:
        harness = HarnessClient(made)
        (call,) = await harness.respond(instructions="Work.", tools=tools, input=[task])
        result = {"type": "function_call_output", "call_id": call["call_id"], "output": ""}
        history = [task, call, result]
        (summary,) = await harness.respond(instructions="Work.", input=[*history, ask])
        text = f"Another model began:\n{summary['content'][0]['text']}"
        history = [task, {"type": "message", "role": "user", "content": text}]
        await harness.respond(instructions="Work.", tools=tools, input=history)
        await harness.respond(instructions="Work.", input=[*history, ask])
        assert harness.roles == [WORK] * 4


@pytest.mark.parametrize("goes_on", [True, False])
async def test_a_summary_of_the_agents_own_turns_is_work_with_any_system_prompt(*, goes_on: bool) -> None:
    """opencode's compaction has a system prompt of its own; smolagents' last answer too."""
    async with open_gateway(CALL, "Hello is there.\x01", "Done.\x01") as made:
        harness, ask = HarnessClient(made), {"role": "user", "content": "Summarise the conversation."}
        reply = await harness.chat(WORKER, TASK)
        said = {"role": "assistant", "content": "I call bash."}
        summary = await harness.chat({"role": "system", "content": "You summarise."}, TASK, said, ask, tools=())
        if goes_on:
            await harness.chat(WORKER, {"role": "user", "content": "What did we do?"}, summary, TASK)
        assert reply["tool_calls"]
        assert harness.roles == [WORK] * (2 + goes_on)


async def test_a_plan_that_the_work_is_given_is_work() -> None:
    async with open_gateway("Facts:\nwrite with echo, then read it\n\x01", CALL, "Done.\x01") as made:
        harness = HarnessClient(made)
        plan = await harness.chat({"role": "user", "content": "Plan the task: make hello.txt"}, tools=())
        told = {"role": "user", "content": f"make hello.txt\n[PLAN]\n{plan['content'].splitlines()[1]}\n[END]"}
        reply = await harness.chat(WORKER, told)
        await harness.chat(WORKER, told, reply, result_of(reply))
        assert harness.roles == [WORK] * 3


PLAN = {"role": "system", "content": "You plan the agent's work."}


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ('{"steps": ["write hello with echo", "read it back"]}', "1. write hello with echo\n2. read it back"),
        ('- Write hello with "echo"\n- Read', json.dumps('- Write hello with "echo"\n- Read')),
        ("The page names seven colours, in this order: red, orange", "Report: the page names seven colo… (cut)"),
    ],
)
async def test_what_a_harness_hands_on_in_another_form_is_work(said: str, told: str) -> None:
    async with open_gateway(f"{said}\x01", CALL) as made:
        harness = HarnessClient(made)
        await harness.chat(PLAN, TASK, tools=())
        await harness.chat(WORKER, {"role": "user", "content": told})
        assert harness.roles == [WORK] * 2


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ("no", "make hello.txt, and nothing else"),
        ("safe", "Never run unsafe commands."),
        ("File", "bash: hello.txt: File exists"),
        ("Making hello.txt", "make hello.txt"),
    ],
)
async def test_a_word_that_a_text_has_too_is_no_quote(said: str, told: str) -> None:
    async with open_gateway(f"{said}\x01", CALL) as made:
        harness = HarnessClient(made)
        await harness.chat(TITLER, TASK, tools=())
        await harness.chat(WORKER, {"role": "user", "content": told})
        assert sorted(harness.roles) == [WORK, AUXILIARY]


@pytest.mark.parametrize("tools", [(BASH,), ()], ids=["calls", "text"])
async def test_commands_of_a_harness_without_a_memory_are_work_though_the_prompt_stays_the_same(
    tools: tuple[object, ...],
) -> None:
    commands = ["mkdir d", "touch d/x", "ls d"]
    says = [call_of(each) if tools else f"```sh\n{each}\n```\x01" for each in commands]
    async with open_gateway(*says, "Done.\x01") as made:
        harness = HarnessClient(made)
        for seen in ("", "", "", "x"):
            await harness.chat({"role": "user", "content": f"{TASK['content']} Last output: {seen!r}."}, tools=tools)
        assert harness.roles == [WORK] * 4
        assert len(made.session.turns()) == 4


@pytest.mark.parametrize("tools", [(BASH,), ()], ids=["tools offered", "no tools"])
async def test_of_candidates_asked_one_after_another_those_that_are_quoted_are_work(tools: tuple[object, ...]) -> None:
    async with open_gateway("Idea A: use echo\x01", "Idea B: use printf\x01", CALL) as made:
        harness = HarnessClient(made)
        ideas = [(await harness.chat(PLAN, TASK, tools=tools))["content"] for _ in range(2)]
        await harness.chat(WORKER, {"role": "user", "content": "\n".join(["Do the best:", *ideas])})
        assert harness.roles == [WORK] * 3


async def test_every_reply_is_work_where_no_request_offers_tools() -> None:
    async with open_gateway("Making a file\x01", "```sh\nls\n```\x01", "Done.\x01") as made:
        harness = HarnessClient(made)
        await harness.ask_title()
        reply = await harness.chat(WORKER, TASK, tools=())
        await harness.chat(WORKER, TASK, reply, {"role": "user", "content": "hello.txt"}, tools=())
        assert harness.roles == [WORK] * 3
        assert len(made.session.turns()) == 3


async def test_replies_that_a_harness_asks_for_again_are_discarded() -> None:
    async with open_gateway("Hm.\x01", "Hm.\x01", CALL, "Hm.\x01", "Done.\x01") as made:
        harness = HarnessClient(made)
        for _ in range(2):
            await harness.chat(WORKER, TASK)
        reply = await harness.chat(WORKER, TASK)
        for _ in range(2):
            await harness.chat(WORKER, TASK, reply, result_of(reply))
        replies = [role for segment in made.session.segments() for role in [turn.role for turn in segment.turns]]
        assert replies.count(DISCARDED) == 3
        assert sorted(harness.roles) == [WORK, WORK, DISCARDED, DISCARDED, DISCARDED]
        assert [turn.text for turn in made.session.turns()] == ["", "Done."]
        assert made.session.last_content == "Done."


async def test_of_two_replies_to_one_prompt_the_continued_one_is_work_and_so_are_both_if_asked_at_once() -> None:
    async with open_gateway("One.\x01", "Two.\x01", "Three.\x01") as made:
        harness, again = HarnessClient(made), {"role": "user", "content": "go on"}
        first = await harness.chat(WORKER, TASK)
        await harness.chat(WORKER, TASK)
        await harness.chat(WORKER, TASK, first, again)
        assert sorted(harness.roles) == [WORK] * 3
    async with open_gateway("One.\x01", "Two.\x01") as made:
        harness = HarnessClient(made)
        made.engine.may_reply.clear()
        made.engine.on_request = lambda: (
            made.engine.may_reply.set() if len(made.engine.received_requests) == 2 else None
        )
        async with asyncio.TaskGroup() as both:
            for _ in range(2):
                both.create_task(harness.chat(WORKER, TASK))
        assert harness.roles == [WORK] * 2


async def test_auxiliary_and_discarded_replies_are_trained_if_the_run_says_so() -> None:
    texts = ("Making a file\x01", "Hm.\x01", CALL, "Done.\x01")
    async with open_gateway(*texts, untrained=frozenset({DISCARDED})) as made:
        harness = HarnessClient(made)
        await harness.ask_title()
        await harness.chat(WORKER, TASK)
        await harness.work()
        losses = {
            turn.role: segment.loss_mask[turn.start : turn.end].all()
            for segment in made.session.segments()
            for turn in segment.turns
            if turn.kind is TurnKind.MODEL
        }
        assert losses == {AUXILIARY: True, DISCARDED: False, WORK: True}
        assert len(made.session.turns()) == 2

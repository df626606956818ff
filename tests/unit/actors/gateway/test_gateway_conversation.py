"""If these fail, a harness that branches or rewrites is trained on tokens that nobody sampled, or on some twice."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from actors.engines.messages import GenerateReply
from actors.gateway.chat_request import ChatTool
from actors.gateway.conversation import ConversationHistory
from actors.tokens.chat_format import ChatFormat
from actors.tokens.chat_messages import ChatMessage, ToolCallMessage
from learner.data.sequences import join_sequences
from protocol.codec import decode_trajectory, encode_trajectory
from protocol.trajectory import (
    ASIDES,
    EpisodeStatus,
    GroupId,
    ReplyRole,
    Reward,
    RolloutRequest,
    Segment,
    Trajectory,
    TurnKind,
)
from tests.support.fakes.fake_policy import END, LS, FakeTokenizer, make_reply

CHAT = ChatFormat(FakeTokenizer())
WORDS = st.sampled_from(["a", "b", "ab", chr(LS)])
STEPS = st.lists(
    st.tuples(
        st.integers(0, 99), WORDS, WORDS, st.sampled_from(["goes on", "rewrites", "trims", "asks again", "asks aside"])
    ),
    max_size=12,
)
TOOL = ChatTool("f", "", {})


def reply_with(text: str, version: int) -> GenerateReply:
    return make_reply([*map(ord, text), END], version)


def decoded(segments: Sequence[Segment]) -> Sequence[Segment]:
    """Return the segments as the learner gets them: through the codec, which checks parents and offsets."""
    request = RolloutRequest("run", GroupId(1), 0, 8, "t", 11)
    trajectory = Trajectory(request, EpisodeStatus.COMPLETED, Reward(1.0), tuple(segments))
    return decode_trajectory(encode_trajectory(trajectory), max_bytes=1 << 24).segments


def test_a_reply_that_cannot_be_added_leaves_the_history_as_it_was() -> None:
    history = ConversationHistory()
    prompt = history.render_prompt(CHAT, [], [{"role": "user", "content": "a"}])
    with pytest.raises(UnicodeEncodeError):
        history.add_reply(prompt, reply_with("b", 1), {"role": "assistant", "content": "\ud800"}, malformed=False)
    assert (history.segments(), history.turns, history.tokens) == ((), [], 0)


@given(STEPS, st.booleans(), st.sets(st.sampled_from(sorted(ASIDES))))
def test_every_sampled_token_of_the_agents_work_has_loss_once_in_the_sequence_it_was_sampled_in(
    steps: list[tuple[int, str, str, str]], calls: bool, untrained: set[ReplyRole]
) -> None:
    history = ConversationHistory(frozenset(untrained))
    conversations: list[list[ChatMessage]] = [[]]
    sampled: list[list[int]] = []
    prompts: list[list[ChatMessage]] = []
    for version, (base, asked, answered, how) in enumerate(steps):
        messages = list(conversations[base % len(conversations)])
        if how == "rewrites" and messages:
            messages[0] = {"role": "user", "content": "in short"}
        if how == "trims" and messages:
            messages[-1] = {"role": "assistant", "content": f" {messages[-1]['content']}\n"}
        messages.append({"role": "user", "content": asked})
        if how == "asks aside":
            messages = [{"role": "system", "content": "title"}, messages[-1]]
        elif how == "asks again" and prompts:
            messages = prompts[base % len(prompts)]
        prompts.append(messages)
        tools = (TOOL,) if calls and messages[0]["role"] != "system" else ()
        prompt = history.render_prompt(CHAT, tools, messages)
        reply = reply_with(answered, version)
        message: ChatMessage = {"role": "assistant", "content": CHAT.decode_reply(reply.token_ids)}
        history.add_reply(prompt, reply, message, malformed=False)
        conversations.append([*messages, message])
        sampled.append(prompt.ids + reply.token_ids)
    if not steps:
        assert history.segments() == ()
        return
    segments = decoded(history.segments())
    everything = join_sequences(decoded(replace(history, untrained=frozenset()).segments()))
    for ids in sampled:
        assert any(tokens[: len(ids)].tolist() == ids for tokens, _ in everything)
    sampled_tokens = sum(len(answered) + 1 for _, _, answered, _ in steps)
    assert sum(int(mask.sum()) for _, mask in everything) == sampled_tokens
    turns = [(segment, turn) for segment in segments for turn in segment.turns if turn.kind is TurnKind.MODEL]
    assert sum(turn.end - turn.start for _, turn in turns) == sampled_tokens
    for segment, turn in turns:
        assert set(segment.loss_mask[turn.start : turn.end]) == {int(turn.role not in untrained)}
    assert any(turn.role is ReplyRole.WORK for _, turn in turns)
    assert len(history.turns) == len(history.turn_order) == sum(turn.role is ReplyRole.WORK for _, turn in turns)
    trained = sum(int(mask.sum()) for _, mask in join_sequences(segments))
    assert trained == sum(int(segment.loss_mask.sum()) for segment in segments)


@given(st.floats(allow_nan=False, allow_infinity=False) | st.integers(-(1 << 62), 1 << 62))
@example(60.0)
@example(-0.0)
@example(9007199254740993)
def test_an_echoed_reply_is_recognised_whatever_its_numbers_look_like(number: float) -> None:
    def call_with(number: float) -> ChatMessage:
        calls: list[ToolCallMessage] = [
            {"type": "function", "function": {"name": "f", "arguments": {"a": [{"b": number}], "c": True}}}
        ]
        return {"role": "assistant", "content": "", "tool_calls": calls}

    history, question = ConversationHistory(), [ChatMessage(role="user", content="q")]
    prompt = history.render_prompt(CHAT, (), question)
    history.add_reply(prompt, reply_with("sampled", 1), call_with(number), malformed=False)

    def renders_the_sampled_tokens(given: float) -> bool:
        messages = [*question, call_with(given), ChatMessage(role="tool", content="r")]
        return history.render_prompt(CHAT, (), messages).ids[: len(prompt.ids) + 7] == [
            *prompt.ids,
            *map(ord, "sampled"),
        ]

    in_javascript = float(number)
    echoed = int(in_javascript) if in_javascript.is_integer() and abs(in_javascript) < 1e15 else in_javascript
    assert renders_the_sampled_tokens(echoed)
    assert renders_the_sampled_tokens(1) == (in_javascript == 1)


def test_an_echoed_reply_is_recognised_without_thoughts_and_with_reordered_arguments() -> None:
    history, question = ConversationHistory(), [ChatMessage(role="user", content="q")]
    prompt = history.render_prompt(CHAT, (), question)
    arguments: dict[str, object] = {"a": 1, "b": 2}
    message: ChatMessage = {
        "role": "assistant",
        "content": "",
        "reasoning_content": "hm",
        "tool_calls": [{"type": "function", "function": {"name": "f", "arguments": arguments}}],
    }
    history.add_reply(prompt, reply_with("sampled", 1), message, malformed=False)
    echo: ChatMessage = {
        "role": "assistant",
        "content": "\n",
        "tool_calls": [{"type": "function", "function": {"arguments": {"b": 2, "a": 1}, "name": "f"}}],
    }
    again = history.render_prompt(CHAT, (), [*question, echo, {"role": "tool", "content": "r"}])
    assert again.ids[: len(prompt.ids) + 8] == [*prompt.ids, *map(ord, "sampled"), END]
    unheard = [*question, {**echo, "content": "another"}, ChatMessage(role="tool", content="r")]
    assert history.render_prompt(CHAT, (), unheard).ids == CHAT.encode_first_prompt(unheard)

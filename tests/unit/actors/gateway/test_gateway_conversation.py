"""If these fail, a harness that branches or rewrites is trained on tokens that nobody sampled, or on some twice."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from actors.engines.messages import GenerateReply
from actors.gateway.conversation import ConversationHistory
from actors.tokens.chat_format import ChatFormat, ChatMessage
from learner.data.sequences import join_sequences
from protocol.codec import decode_trajectory, encode_trajectory
from protocol.trajectory import EpisodeStatus, GroupId, Reward, RolloutRequest, Segment, Trajectory
from tests.support.fakes.fake_policy import END, LS, FakeTokenizer, make_reply

CHAT = ChatFormat(FakeTokenizer())
WORDS = st.sampled_from(["a", "b", "ab", chr(LS)])
STEPS = st.lists(
    st.tuples(st.integers(0, 99), WORDS, WORDS, st.sampled_from(["goes on", "rewrites", "trims"])), max_size=12
)


def reply_with(text: str, version: int) -> GenerateReply:
    return make_reply([*map(ord, text), END], version)


def decoded(segments: Sequence[Segment]) -> Sequence[Segment]:
    """Return the segments as the learner gets them: through the codec, which checks parents and offsets."""
    request = RolloutRequest("run", GroupId(1), 0, 8, "t", 11)
    trajectory = Trajectory(request, EpisodeStatus.COMPLETED, Reward(1.0), tuple(segments))
    return decode_trajectory(encode_trajectory(trajectory), max_bytes=1 << 24).segments


@given(STEPS)
def test_every_sampled_token_has_loss_once_in_the_sequence_it_was_sampled_in(
    steps: list[tuple[int, str, str, str]],
) -> None:
    history = ConversationHistory()
    conversations: list[list[ChatMessage]] = [[]]
    sampled: list[list[int]] = []
    for version, (base, asked, answered, how) in enumerate(steps):
        messages = list(conversations[base % len(conversations)])
        if how == "rewrites" and messages:
            messages[0] = {"role": "user", "content": "in short"}
        if how == "trims" and messages:
            messages[-1] = {"role": "assistant", "content": f" {messages[-1]['content']}\n"}
        messages.append({"role": "user", "content": asked})
        prompt = history.render_prompt(CHAT, (), messages)
        reply = reply_with(answered, version)
        message: ChatMessage = {"role": "assistant", "content": CHAT.decode_reply(reply.token_ids)}
        history.add_reply(prompt, reply, message, malformed=False)
        conversations.append([*messages, message])
        sampled.append(prompt.ids + reply.token_ids)
    if not steps:
        assert history.segments() == ()
        return
    sequences = join_sequences(decoded(history.segments()))
    trained = sum(int(mask.sum()) for _, mask in sequences)
    assert trained == sum(len(answered) + 1 for _, _, answered, _ in steps)
    for ids in sampled:
        assert any(tokens[: len(ids)].tolist() == ids for tokens, _ in sequences)


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

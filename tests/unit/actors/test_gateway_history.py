"""If these fail, a harness that branches or rewrites is trained on tokens that nobody sampled, or on some twice."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from actors.agents.chat import ChatFormat, Message
from actors.engines.messages import GenerateReply
from actors.gateway.history import History
from learner.sequences import whole
from protocol.codec import decode, encode
from protocol.trajectory import GroupId, Reward, Segment, Status, Ticket, Trajectory
from tests.support.fake_policy import END, LS, FakeTokenizer, reply_of

CHAT = ChatFormat(FakeTokenizer())
WORDS = st.sampled_from(["a", "b", "ab", chr(LS)])
STEPS = st.lists(
    st.tuples(st.integers(0, 99), WORDS, WORDS, st.sampled_from(["goes on", "rewrites", "trims"])), max_size=12
)


def said(text: str, version: int) -> GenerateReply:
    return reply_of([*map(ord, text), END], version)


def decoded(segments: Sequence[Segment]) -> Sequence[Segment]:
    """As the learner gets them: through the codec, which checks parents and offsets."""
    ticket = Ticket("run", GroupId(1), 0, 8, "t", 11)
    trajectory = Trajectory(ticket, Status.COMPLETED, Reward(1.0), tuple(segments))
    return decode(encode(trajectory), max_bytes=1 << 24).segments


@given(STEPS)
def test_every_sampled_token_has_loss_once_in_a_sequence_that_it_was_sampled_in(
    steps: list[tuple[int, str, str, str]],
) -> None:
    history = History()
    conversations: list[list[Message]] = [[]]
    sampled: list[list[int]] = []
    for version, (base, asked, answered, how) in enumerate(steps):
        messages = list(conversations[base % len(conversations)])
        if how == "rewrites" and messages:
            messages[0] = {"role": "user", "content": "in short"}
        if how == "trims" and messages:
            messages[-1] = {"role": "assistant", "content": f" {messages[-1]['content']}\n"}
        messages.append({"role": "user", "content": asked})
        prompt = history.prompt(CHAT, (), messages)
        reply = said(answered, version)
        told: Message = {"role": "assistant", "content": CHAT.text(reply.token_ids)}
        history.keep(prompt, reply, told, malformed=False)
        conversations.append([*messages, told])
        sampled.append(prompt.ids + reply.token_ids)
    if not steps:
        assert history.segments() == ()
        return
    sequences = whole(decoded(history.segments()))
    trained = sum(int(mask.sum()) for _, mask in sequences)
    assert trained == sum(len(answered) + 1 for _, _, answered, _ in steps)
    for ids in sampled:
        assert any(tokens[: len(ids)].tolist() == ids for tokens, _ in sequences)


def test_a_reply_is_recognised_without_its_thoughts_and_with_its_arguments_in_another_order() -> None:
    history, question = History(), [Message(role="user", content="q")]
    prompt = history.prompt(CHAT, (), question)
    arguments: dict[str, object] = {"a": 1, "b": 2}
    told: Message = {
        "role": "assistant",
        "content": "",
        "reasoning_content": "hm",
        "tool_calls": [{"type": "function", "function": {"name": "f", "arguments": arguments}}],
    }
    history.keep(prompt, said("sampled", 1), told, malformed=False)
    echo: Message = {
        "role": "assistant",
        "content": "\n",
        "tool_calls": [{"type": "function", "function": {"arguments": {"b": 2, "a": 1}, "name": "f"}}],
    }
    again = history.prompt(CHAT, (), [*question, echo, {"role": "tool", "content": "r"}])
    assert again.ids[: len(prompt.ids) + 8] == [*prompt.ids, *map(ord, "sampled"), END]
    unheard = [*question, {**echo, "content": "another"}, Message(role="tool", content="r")]
    assert history.prompt(CHAT, (), unheard).ids == CHAT.first_prompt(unheard)

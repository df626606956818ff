"""If these fail, a history that is rendered anew is trained on tokens that nobody sampled, or on some twice."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from actors.tokens.segment_tree import ObservationSource, SegmentTree
from learner.data.sequences import join_sequences
from protocol.codec import decode_trajectory, encode_trajectory
from protocol.trajectory import EpisodeStatus, GroupId, Reward, RolloutRequest, Segment, Trajectory, TurnKind
from tests.support.fakes.fake_policy import make_reply

IDS = st.lists(st.integers(2, 4), min_size=1, max_size=6)
STEPS = st.lists(st.tuples(st.integers(0, 99), st.integers(0, 12), IDS, IDS), max_size=12)


def decoded(made: SegmentTree) -> tuple[Segment, ...]:
    """Return the segments as the learner gets them: through the codec, which checks parents and offsets."""
    request = RolloutRequest("run", GroupId(1), 0, 8, "t", 11)
    trajectory = Trajectory(request, EpisodeStatus.COMPLETED, Reward(1.0), made.segments())
    return decode_trajectory(encode_trajectory(trajectory), max_bytes=1 << 24).segments


@given(STEPS)
def test_every_sampled_token_has_loss_once_after_the_prompt_it_was_sampled_from(
    steps: list[tuple[int, int, list[int], list[int]]],
) -> None:
    """Prompts that begin as an earlier turn does, up to anywhere in it, and go on otherwise or alike."""
    made, turns, stored = SegmentTree(), [list[int]()], 0
    for version, (base, kept, more, reply) in enumerate(steps, 1):
        prompt = turns[base % len(turns)][:kept] + more
        new = made.count_new_tokens(prompt)
        made.add_reply(prompt, make_reply(reply, version), ObservationSource(), malformed=False)
        stored += new + len(reply)
        assert made.token_count == stored, "what new() announces is what is stored"
        turns.append(prompt + reply)
    if not steps:
        return
    assert len(made.segments()) <= len(steps), "the buffer takes one segment for each reply"
    sequences = join_sequences(decoded(made))
    assert sum(int(mask.sum()) for _, mask in sequences) == sum(len(reply) for *_, reply in steps)
    for (*_, reply), turn in zip(steps, turns[1:], strict=True):
        assert any(tokens[: len(turn)].tolist() == turn for tokens, _ in sequences)
        assert len(turn) >= len(reply)


def test_an_observation_turn_names_its_tool() -> None:
    made = SegmentTree()
    made.add_reply([2, 2], make_reply([3], 1), ObservationSource(), malformed=False)
    made.add_reply([2, 2, 3, 4, 4], make_reply([3], 2), ObservationSource("shell_exec", 7, 5.0), malformed=True)
    made.add_reply([2, 4], make_reply([3], 3), ObservationSource("shell_view", 0, 1.0), malformed=False)
    first, branch = made.segments()
    assert [(turn.kind, turn.start, turn.end, turn.tool) for turn in first.turns] == [
        (TurnKind.PROMPT, 0, 2, ""),
        (TurnKind.MODEL, 2, 3, ""),
        (TurnKind.OBSERVATION, 3, 5, "shell_exec"),
        (TurnKind.MODEL, 5, 6, ""),
    ]
    assert [turn.malformed for turn in first.turns] == [False, False, False, True]
    assert (branch.parent, branch.offset, branch.token_ids.tolist()) == (0, 1, [4, 3])
    assert branch.turns[0].tool == "shell_view"


def test_turns_are_numbered_as_they_ended_where_segments_have_another_order() -> None:
    """Otherwise a turn's jump leads to another one's place in the recording."""
    made = SegmentTree()
    made.add_reply([2], make_reply([3], 1), malformed=False)
    made.add_reply([4], make_reply([3], 2), malformed=False)
    assert numbers(made) == [[0], [0]]
    made.add_reply([2, 3, 4], make_reply([3], 3), malformed=False)
    assert numbers(made) == [[0, 2], [1]]


def numbers(made: SegmentTree) -> list[list[int]]:
    return [[turn.number for turn in each.turns if turn.kind is TurnKind.MODEL] for each in decoded(made)]

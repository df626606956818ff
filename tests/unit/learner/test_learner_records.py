"""If these fail, a person sees the learner's log-probability, advantage or clip at another token than its own."""

from __future__ import annotations

import numpy as np

from learner.packing import Sample
from learner.records import token_records
from learner.sequences import samples
from learner.step import Seen
from protocol.trained import Mark, unpack_facts
from protocol.trajectory import Segment, Turn, TurnKind


def segment(mask: str, parent: int = -1, offset: int = 0, first: int = 0) -> Segment:
    """``mask``: a character a token, 1 where it was sampled."""
    loss = np.array([int(char) for char in mask], np.uint8)
    ids = np.arange(first, first + len(mask), dtype=np.int32)
    return Segment(ids, loss, (-ids * loss).astype(np.float32), np.where(loss == 1, 3, -1).astype(np.int32),
                   (Turn(TurnKind.MODEL, 0, len(mask), key_version=3),), parent, offset)  # fmt: skip


def test_facts_stand_where_their_tokens_do_in_branches_too() -> None:
    """The third segment goes on behind a part of the first, so it is a sequence with a prefix; the second joins the
    first."""
    segments = (segment("00110"), segment("0101", 0, 5, 5), segment("011", 0, 3, 9))
    ages = [np.where(each.loss_mask == 1, 0, -1).astype(np.int32) for each in segments]
    advantages = [np.full(len(each), index + 1, np.float32) for index, each in enumerate(segments)]
    made = samples(segments, [each.loss_mask for each in segments], ages, advantages, weight=1.0, origin=1)
    seen: list[tuple[Sample, Seen]] = []
    for sample in made:
        logprobs = -100.0 - sample.token_ids[sample.targets].astype(np.float32)
        seen.append((sample, Seen(logprobs, np.full(len(logprobs), Mark.LOW))))
    records = token_records(("other", "mine"), (3, 12), seen)
    assert list(records) == ["mine"]
    facts = unpack_facts(records["mine"].blob)
    sampled = np.concatenate([each.loss_mask for each in segments]) == 1
    ids = np.concatenate([each.token_ids for each in segments])
    assert np.array_equal(~np.isnan(facts.logprobs), sampled)
    assert np.array_equal(facts.logprobs[sampled], (-100.0 - ids[sampled]).astype(np.float32))
    assert facts.advantages[sampled].tolist() == [1, 1, 2, 2, 3, 3]
    assert facts.marks.tolist() == [Mark.LOW * int(each) for each in sampled]
    assert records["mine"].gap == 100.0
    assert records["mine"].advantage == 2.0


def test_a_token_without_loss_has_no_facts() -> None:
    one = segment("0111")
    kept = np.array([0, 1, 0, 1], np.uint8)
    (sample,) = samples([one], [kept], [np.zeros(4, np.int32)], [np.ones(4, np.float32)], weight=1.0, origin=0)
    seen = [(sample, Seen(np.array([-1.0, -2.0]), np.zeros(2, np.uint8)))]
    facts = unpack_facts(token_records(("mine",), (4,), seen)["mine"].blob)
    assert np.isnan(facts.logprobs).tolist() == [True, False, True, False]

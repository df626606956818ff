"""If these fail, a person sees the learner's log-probability, advantage or clip at another token than its own."""

from __future__ import annotations

import numpy as np

from learner.data.micro_batches import TrainingSample
from learner.data.sequences import make_samples
from learner.training.token_records import pack_token_records
from learner.training.trainer import TokenResults
from protocol.run_directory.trained_log import TokenLossFlag, unpack_trained_tokens
from protocol.trajectory import Segment, Turn, TurnKind


def segment(mask: str, parent: int = -1, offset: int = 0, first: int = 0) -> Segment:
    """``mask``: a character a token, 1 where it was sampled."""
    loss = np.array([int(char) for char in mask], np.uint8)
    ids = np.arange(first, first + len(mask), dtype=np.int32)
    return Segment(ids, loss, (-ids * loss).astype(np.float32), np.where(loss == 1, 3, -1).astype(np.int32),
                   (Turn(TurnKind.MODEL, 0, len(mask), key_version=3),), parent, offset)  # fmt: skip


def test_token_records_align_with_their_tokens_also_in_branches() -> None:
    """The third segment goes on behind a part of the first, so it is a sequence with a prefix; the second joins the
    first."""
    segments = (segment("00110"), segment("0101", 0, 5, 5), segment("011", 0, 3, 9))
    staleness = [np.where(each.loss_mask == 1, 0, -1).astype(np.int32) for each in segments]
    advantages = [np.full(len(each), index + 1, np.float32) for index, each in enumerate(segments)]
    made = make_samples(segments, [each.loss_mask for each in segments], staleness, advantages, weight=1.0, origin=1)
    seen: list[tuple[TrainingSample, TokenResults]] = []
    for sample in made:
        logprobs = -100.0 - sample.token_ids[sample.targets].astype(np.float32)
        seen.append((sample, TokenResults(logprobs, np.full(len(logprobs), TokenLossFlag.LOW))))
    records = pack_token_records(("other", "mine"), (3, 12), seen)
    assert list(records) == ["mine"]
    facts = unpack_trained_tokens(records["mine"].blob)
    sampled = np.concatenate([each.loss_mask for each in segments]) == 1
    ids = np.concatenate([each.token_ids for each in segments])
    assert np.array_equal(~np.isnan(facts.logprobs), sampled)
    assert np.array_equal(facts.logprobs[sampled], (-100.0 - ids[sampled]).astype(np.float32))
    assert facts.advantages[sampled].tolist() == [1, 1, 2, 2, 3, 3]
    assert facts.loss_flags.tolist() == [TokenLossFlag.LOW * int(each) for each in sampled]
    assert records["mine"].mean_logprob_gap == 100.0
    assert records["mine"].mean_advantage == 2.0


def test_a_token_without_loss_has_no_record() -> None:
    one = segment("0111")
    kept = np.array([0, 1, 0, 1], np.uint8)
    (sample,) = make_samples([one], [kept], [np.zeros(4, np.int32)], [np.ones(4, np.float32)], weight=1.0, origin=0)
    seen = [(sample, TokenResults(np.array([-1.0, -2.0]), np.zeros(2, np.uint8)))]
    facts = unpack_trained_tokens(pack_token_records(("mine",), (4,), seen)["mine"].blob)
    assert np.isnan(facts.logprobs).tolist() == [True, False, True, False]

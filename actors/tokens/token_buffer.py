"""The token sequence of a segment as it grows: tokens given to the policy, and tokens that it sampled, unchanged."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from actors.engines.messages import GenerateReply
from protocol.trajectory import Segment, Turn, TurnKind


@dataclass(slots=True)
class TokenBuffer:
    """Parallel lists of one segment: ids, loss mask, log-probabilities, versions, and the turns over them."""

    token_ids: list[int] = field(default_factory=list[int])
    loss_mask: list[int] = field(default_factory=list[int])
    logprobs: list[float] = field(default_factory=list[float])
    versions: list[int] = field(default_factory=list[int])
    turns: list[Turn] = field(default_factory=list[Turn])

    def append_given(
        self, kind: TurnKind, ids: list[int], *, tool: str = "", exit_code: int | None = None, ms: float = 0.0
    ) -> None:
        """Append tokens that the policy did not sample."""
        start = len(self.token_ids)
        self.token_ids += ids
        self.loss_mask += [0] * len(ids)
        self.logprobs += [0.0] * len(ids)
        self.versions += [-1] * len(ids)
        self.turns.append(Turn(kind, start, start + len(ids), tool=tool, exit_code=exit_code, duration_ms=ms))

    def append_sampled(self, reply: GenerateReply, *, malformed: bool) -> None:
        """Append tokens that the policy sampled."""
        start = len(self.token_ids)
        self.token_ids += reply.token_ids
        self.loss_mask += [1] * len(reply.token_ids)
        self.logprobs += reply.logprobs
        self.versions += reply.versions
        self.turns.append(
            Turn(
                TurnKind.MODEL,
                start,
                len(self.token_ids),
                duration_ms=reply.ms,
                key_version=reply.key_version,
                mixed_prefix=reply.mixed_prefix,
                server_switches=reply.server_switches,
                malformed=malformed,
            )
        )

    def to_segment(self, *, parent: int = -1, offset: int = 0) -> Segment:
        """Return the segment; ``parent`` and ``offset`` are those of :class:`Segment`."""
        return Segment(
            np.asarray(self.token_ids, np.int32),
            np.asarray(self.loss_mask, np.uint8),
            np.asarray(self.logprobs, np.float32),
            np.asarray(self.versions, np.int32),
            tuple(self.turns),
            parent,
            offset,
        )

"""What an attempt says of itself to whoever keeps trajectories."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from protocol.events import Json
from protocol.trajectory import Segment


def told_segments(segments: Sequence[Segment]) -> list[Json]:
    return [
        {
            "token_ids": cast("Json", segment.token_ids.tolist()),
            "loss_mask": cast("Json", segment.loss_mask.tolist()),
            "logprobs": cast("Json", segment.logprobs.tolist()),
        }
        for segment in segments
    ]

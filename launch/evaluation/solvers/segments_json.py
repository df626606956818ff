"""Segments of a trajectory as JSON, for ``--save-trajectories``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from protocol.events import JsonValue
from protocol.trajectory import Segment


def segments_as_json(segments: Sequence[Segment]) -> list[JsonValue]:
    return [
        {
            "token_ids": cast("JsonValue", segment.token_ids.tolist()),
            "loss_mask": cast("JsonValue", segment.loss_mask.tolist()),
            "logprobs": cast("JsonValue", segment.logprobs.tolist()),
        }
        for segment in segments
    ]

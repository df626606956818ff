"""If this fails, an episode that comes near the end of its context counts as failed hardware."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest

from actors.engines.engine import EngineSettings
from actors.engines.server import server_arguments
from protocol.weights import NO_VERSION, Version, WeightManifest

CONTEXT = 512
MANIFEST = WeightManifest(Version(1), 0, NO_VERSION, "/weights", "", 0, 0)


@pytest.mark.parametrize("kv_slots", [CONTEXT, 8192])
def test_a_request_may_use_the_whole_context(kv_slots: int) -> None:
    settings = EngineSettings(
        name="engine-0", run_dir=Path(), model_path="", context_length=CONTEXT, max_running=2, device="cpu"
    )
    arguments = server_arguments(replace(settings, max_total_tokens=kv_slots).server(), MANIFEST, 1, "key")
    given = dict(pairwise(arguments))
    longest = min(int(given["--context-length"]), int(given["--max-total-tokens"])) - 1  # as SGLang counts
    for tokens in range(1, CONTEXT):
        assert tokens < longest - 5, "it would refuse the input"
        assert longest - tokens - 1 >= CONTEXT - tokens, "it would cut the reply"

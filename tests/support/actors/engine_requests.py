"""Builds requests to an engine, its replies and its statistics; a test names only the fields that matter to it."""

from __future__ import annotations

import json

from actors.engines.messages import EngineLoad, EngineState, GenerateRequest, TokensInFlight
from protocol.weights import WeightVersion


def make_request(input_ids: list[int], max_new_tokens: int, **changes: object) -> GenerateRequest:
    fields = {
        "temperature": 1.0,
        "stop_token_ids": (),
        "seed": None,
        "greedy": False,
        "session": "s",
        "deadline_s": 600.0,
    }
    return GenerateRequest(input_ids=input_ids, max_new_tokens=max_new_tokens, **(fields | changes))


def make_chunk(token_ids: list[int], *, ends: bool, **changes: object) -> bytes:
    """One chunk of a reply as SGLang streams it; the last chunk has the versions of three tokens."""
    meta: dict[str, object] = {
        "finish_reason": {"type": "length", "length": 3} if ends else None,
        "output_token_logprobs": [[-token / 10, token, None] for token in token_ids],
        "cached_tokens": 5,
    }
    if ends:
        meta["weight_versions"] = [{"version": "3", "start": 0, "end": 1}, {"version": "4", "start": 1, "end": 3}]
    return json.dumps({"output_ids": changes.pop("output_ids", token_ids), "meta_info": meta | changes}).encode()


def make_load(
    others: int = 0,
    *,
    own: int = 0,
    queued: int = 0,
    state: EngineState = EngineState.SERVING,
    paused_s: float = 0.0,
    version: int = 1,
) -> EngineLoad:
    """The load of an engine with ``others`` tokens of other routers' requests in flight and ``own`` of the caller's."""
    tokens = TokensInFlight(running=others + own - queued, queued=queued, of_caller=own)
    return EngineLoad(state=state, paused_s=paused_s, version=WeightVersion(version), tokens=tokens)

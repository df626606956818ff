"""Requests to an engine: of a test's own is only what it is about."""

from __future__ import annotations

from actors.engines.messages import GenerateRequest


def request(input_ids: list[int], max_new_tokens: int, **changes: object) -> GenerateRequest:
    fields = {
        "temperature": 1.0,
        "stop_token_ids": (),
        "seed": None,
        "greedy": False,
        "session": "s",
        "deadline_s": 600.0,
    }
    return GenerateRequest(input_ids=input_ids, max_new_tokens=max_new_tokens, **(fields | changes))

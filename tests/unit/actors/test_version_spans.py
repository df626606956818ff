"""Token labels: a span that is wrong would train a token against the wrong weights' age, so it is refused."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors.engines.client import VersionSpan, expand_spans, parse_generated
from actors.engines.messages import ServerLost


@given(st.lists(st.tuples(st.integers(0, 2**40), st.integers(1, 5)), min_size=1, max_size=6))
def test_spans_that_cover_each_token_once_label_each_token(parts: list[tuple[int, int]]) -> None:
    spans, expected = [], []
    for version, length in parts:
        spans.append(VersionSpan(version, len(expected), len(expected) + length))
        expected += [version] * length
    assert expand_spans(spans, len(expected)) == expected


@pytest.mark.parametrize(
    ("spans", "count"),
    [
        ([], 3),
        ([VersionSpan(1, 0, 2)], 3),
        ([VersionSpan(1, 0, 4)], 3),
        ([VersionSpan(1, 1, 3)], 3),
        ([VersionSpan(1, 0, 1), VersionSpan(2, 2, 3)], 3),
        ([VersionSpan(1, 0, 2), VersionSpan(2, 1, 3)], 3),
        ([VersionSpan(1, 0, 0), VersionSpan(2, 0, 3)], 3),
    ],
    ids=["none", "short", "long", "late", "hole", "overlap", "empty"],
)
def test_spans_that_do_not_are_refused(spans: list[VersionSpan], count: int) -> None:
    with pytest.raises(ServerLost):
        expand_spans(spans, count)


def reply(**changes: object) -> bytes:
    meta: dict[str, object] = {
        "finish_reason": {"type": "length", "length": 2},
        "output_token_logprobs": [[-0.5, 7, None], [-1.5, 8, None]],
        "weight_versions": [{"version": "3", "start": 0, "end": 1}, {"version": "4", "start": 1, "end": 2}],
        "cached_tokens": 5,
    }
    return json.dumps({"output_ids": changes.pop("output_ids", [7, 8]), "meta_info": meta | changes}).encode()


def test_a_reply_gives_ids_logprobs_and_versions_of_equal_length() -> None:
    sampled = parse_generated(reply())
    assert (sampled.token_ids, sampled.logprobs, sampled.versions) == ([7, 8], [-0.5, -1.5], [3, 4])
    assert (sampled.finish, sampled.cached_tokens) == ("length", 5)


@pytest.mark.parametrize(
    "changes",
    [
        {"output_ids": [7]},
        {"output_ids": [7, 9]},
        {"output_ids": [], "output_token_logprobs": [], "weight_versions": []},
        {"output_token_logprobs": None},
        {"weight_versions": [{"version": "default", "start": 0, "end": 2}]},
        {"weight_versions": []},
        {"finish_reason": {"type": "abort", "message": "out of memory"}},
        {"finish_reason": None},
    ],
    ids=["fewer ids", "other ids", "empty", "no logprobs", "no number", "no versions", "aborted", "unfinished"],
)
def test_a_reply_that_contradicts_itself_is_not_used(changes: dict[str, object]) -> None:
    with pytest.raises(ServerLost):
        parse_generated(reply(**changes))


@pytest.mark.parametrize("body", [b"", b"[]", b"{}", b'{"meta_info": 3}', b"\xff"])
def test_a_reply_that_is_none_is_not_used(body: bytes) -> None:
    with pytest.raises(ServerLost):
        parse_generated(body)

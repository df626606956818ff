"""Replies as they come: a token that is lost or has the wrong label would be trained as what it is not."""

import json
import pickle
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors.engines.messages import EngineUnavailable, PartialReply, RequestRefused, ServerLost
from actors.engines.routing.inflight_request import InflightRequest
from actors.engines.routing.prefix_cache import PrefixKey
from actors.engines.server.reply_stream import ReplyStream, VersionSpan, expand_spans
from protocol.weights import WeightVersion
from tests.support.actors.engine_requests import make_chunk, make_request


@given(st.lists(st.tuples(st.integers(0, 2**40), st.integers(1, 5)), min_size=1, max_size=6))
def test_spans_that_cover_each_token_once_label_each_token(parts: list[tuple[int, int]]) -> None:
    spans, expected = list[VersionSpan](), list[int]()
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
def test_spans_that_do_not_cover_each_token_once_are_refused(spans: list[VersionSpan], count: int) -> None:
    with pytest.raises(ServerLost):
        expand_spans(spans, count)


def test_chunks_are_joined_into_one_reply_with_lists_of_equal_length() -> None:
    stream = ReplyStream(3, 3)
    assert stream.parse_chunk(make_chunk([7], ends=False)) is None
    whole = stream.parse_chunk(make_chunk([8, 9], ends=True))
    assert whole is not None
    assert (whole.token_ids, whole.logprobs, whole.versions) == ([7, 8, 9], [-0.7, -0.8, -0.9], [3, 4, 4])
    assert (whole.finish, whole.cached_tokens) == ("length", 5)


def test_an_adapter_reply_has_the_adapters_version_not_the_base_weights_version() -> None:
    stream = ReplyStream(3, 9, adapter=True)
    stream.parse_chunk(make_chunk([7], ends=False))
    assert stream.partial_reply(9).versions == [9]
    whole = stream.parse_chunk(make_chunk([8, 9], ends=True))
    assert whole is not None
    assert whole.versions == [9, 9, 9]


@pytest.mark.parametrize(
    "changes",
    [
        {"output_ids": [7]},
        {"output_ids": [7, 8, 6]},
        {"output_ids": [7, 8, 9, 9], "output_token_logprobs": [[-1.0, token, None] for token in (7, 8, 9, 9)]},
        {"output_ids": [], "output_token_logprobs": [], "weight_versions": []},
        {"output_token_logprobs": None},
        {"weight_versions": [{"version": "default", "start": 0, "end": 3}]},
        {"weight_versions": []},
        {"finish_reason": {"type": "abort", "message": "out of memory"}},
        {"finish_reason": None},
    ],
    ids=["fewer", "others", "more", "none", "no logprobs", "no number", "no versions", "aborted", "without an end"],
)
def test_a_reply_that_contradicts_itself_is_not_used(changes: dict[str, object]) -> None:
    with pytest.raises(ServerLost):
        ReplyStream(3, 3).parse_chunk(make_chunk([7, 8, 9], ends=True, **changes))


@pytest.mark.parametrize("body", [b"", b"[]", b"{}", b'{"meta_info": 3}', b"\xff", b"[DONE]"])
def test_an_unreadable_reply_is_refused(body: bytes) -> None:
    with pytest.raises(ServerLost):
        ReplyStream(3, 3).parse_chunk(body)


@pytest.mark.parametrize(("code", "error"), [(400, RequestRefused), (503, ServerLost), (None, ServerLost)])
def test_an_error_chunk_in_the_stream_raises_the_error_of_its_code(code: int | None, error: type[Exception]) -> None:
    with pytest.raises(error, match="too long"):
        ReplyStream(3, 3).parse_chunk(json.dumps({"error": {"code": code, "message": "too long"}}).encode())


ASKED = make_request([1, 2], 6)


def served(version: int) -> tuple[WeightVersion, PrefixKey]:
    return WeightVersion(version), PrefixKey(f"v{version}", WeightVersion(version))


def test_tokens_received_before_a_server_is_lost_are_kept() -> None:
    work = InflightRequest(ASKED, lambda: None)
    work.begin_attempt(*served(3)).parse_chunk(make_chunk([7, 8], ends=False))
    assert (work.keep_partial_reply(), work.input_ids, work.tokens_left) == (2, [1, 2, 7, 8], 4)
    other = work.begin_attempt(*served(4))
    whole = other.parse_chunk(make_chunk([9], ends=True, weight_versions=[{"version": "4", "start": 0, "end": 1}]))
    assert whole is not None
    reply = work.build_reply(whole, "e")
    assert (reply.token_ids, reply.logprobs, reply.versions) == ([7, 8, 9], [-0.7, -0.8, -0.9], [3, 3, 4])
    assert (reply.server_switches, reply.key_version, reply.mixed_prefix) == (1, 4, False)


def test_a_reply_across_weight_updates_keeps_all_tokens_with_the_oldest_possible_version() -> None:
    """Only the last chunk says where they changed, and it never came: the next one may have some of both."""
    work = InflightRequest(ASKED, lambda: None)
    stream = work.begin_attempt(*served(3))
    stream.parse_chunk(make_chunk([7], ends=False))
    work.note_weight_change(WeightVersion(4))
    stream.parse_chunk(make_chunk([], ends=False))
    stream.parse_chunk(make_chunk([8], ends=False))
    stream.parse_chunk(make_chunk([9], ends=False))
    work.note_weight_change(WeightVersion(5))
    work.note_weight_change(WeightVersion(6))
    stream.parse_chunk(make_chunk([7], ends=False))
    stream.parse_chunk(make_chunk([8], ends=False))
    assert work.partial_reply == PartialReply([7, 8, 9, 7, 8], [-0.7, -0.8, -0.9, -0.7, -0.8], [3, 3, 4, 4, 6])
    assert work.keep_partial_reply() == 5


def test_a_mixed_prefix_stays_marked_when_the_server_that_mixed_it_is_lost() -> None:
    """Otherwise these tokens would count as sampled from a single weight version."""
    work = InflightRequest(ASKED, lambda: None)
    stream = work.begin_attempt(WeightVersion(4), PrefixKey("v3-s", WeightVersion(3)))
    stream.parse_chunk(make_chunk([7, 8], ends=False))
    assert work.keep_partial_reply() == 2
    whole = work.begin_attempt(*served(4)).parse_chunk(
        make_chunk([9], ends=True, weight_versions=[{"version": "4", "start": 0, "end": 1}])
    )
    assert whole is not None
    assert work.build_reply(whole, "e").mixed_prefix
    elsewhere = InflightRequest(replace(ASKED, resume_from=work.kept_reply), lambda: None)
    assert elsewhere.partial_reply.mixed_prefix


def test_a_final_chunk_is_not_kept_for_resuming() -> None:
    """A server that dies behind its last word, which is not answered yet: the next would speak on after the turn."""
    work = InflightRequest(ASKED, lambda: None)
    stream = work.begin_attempt(*served(3))
    stream.parse_chunk(make_chunk([7], ends=False))
    stream.parse_chunk(make_chunk([8, 9], ends=True))
    assert work.partial_reply.token_ids == [7]


def test_tokens_beyond_the_requested_number_are_not_kept_for_resuming() -> None:
    work = InflightRequest(ASKED, lambda: None)
    stream = work.begin_attempt(*served(3))
    stream.parse_chunk(make_chunk([7], ends=False))
    with pytest.raises(ServerLost):
        stream.parse_chunk(make_chunk([8] * 5, ends=False))
    assert (work.keep_partial_reply(), work.tokens_left) == (1, 5)


def test_a_watcher_receives_exactly_the_tokens_that_another_server_would_resume_from() -> None:
    partials = list[list[int]]()
    request = replace(ASKED, resume_from=PartialReply([6], [-0.6], [2]))
    work = InflightRequest(request, lambda: None, lambda came: partials.append(came.token_ids))
    work.begin_attempt(*served(3)).parse_chunk(make_chunk([7], ends=False))
    work.keep_partial_reply()
    stream = work.begin_attempt(*served(4))
    stream.parse_chunk(make_chunk([8], ends=False))
    work.note_weight_change(WeightVersion(5))
    stream.parse_chunk(make_chunk([], ends=False))  # nothing new to tell
    stream.parse_chunk(make_chunk([9], ends=False))
    assert partials == [[6, 7], [6, 7, 8], [6, 7, 8, 9]]


def test_a_partial_reply_survives_pickling_and_another_engine_resumes_from_it() -> None:
    """Errors cross processes by pickle, which forgets what an exception was not made of."""
    sent = EngineUnavailable("gone", PartialReply([7], [-0.7], [3]))
    came = pickle.loads(pickle.dumps(sent))  # noqa: S301  its own bytes
    assert (str(came), came.partial_reply) == ("gone", sent.partial_reply)
    work = InflightRequest(replace(ASKED, resume_from=came.partial_reply), lambda: None)
    assert (work.input_ids, work.tokens_left, work.server_switches) == ([1, 2, 7], 5, 1)

"""If these fail, a peer that cannot get in is named wrongly or not at all, or one that tries for ever fills the log."""

from __future__ import annotations

import zmq

from protocol.stream.connections import ConnectionEnd, ConnectionTracker
from protocol.stream.inbox import StreamRefusal
from protocol.stream.messages import RefusalReason
from protocol.stream.throttle import NoticeThrottle


def test_a_failed_handshake_is_reported_with_its_peers_address() -> None:
    connections = ConnectionTracker(lambda descriptor: f"10.0.0.{descriptor}:7")
    assert connections.handle_event(zmq.EVENT_ACCEPTED, 4) is None
    assert connections.handle_event(zmq.EVENT_ACCEPTED, 5) is None
    assert (
        connections.handle_event(zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL, int(zmq.PROTOCOL_ERROR_ZMTP_MECHANISM_MISMATCH))
        is None
    )
    ended = connections.handle_event(zmq.EVENT_DISCONNECTED, 5)
    assert ended == ConnectionEnd(
        "10.0.0.5:7", StreamRefusal(RefusalReason.UNAUTHENTICATED, "one end has keys and the other has none")
    )
    assert connections.handle_event(zmq.EVENT_DISCONNECTED, 4) == ConnectionEnd("10.0.0.4:7", None), (
        "it failed for another"
    )


def test_each_kind_of_failure_has_its_reason() -> None:
    def failed(event: int, value: int) -> tuple[RefusalReason, str]:
        connections = ConnectionTracker(lambda _: "a")
        connections.handle_event(event, value)
        ended = connections.handle_event(zmq.EVENT_DISCONNECTED, 9)
        assert ended is not None
        assert ended.failure is not None
        assert ended.peer == "?", "nobody saw it come"
        return ended.failure.reason, ended.failure.detail

    wrong_key = failed(zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL, int(zmq.PROTOCOL_ERROR_ZMTP_CRYPTOGRAPHIC))
    assert wrong_key == (RefusalReason.UNAUTHENTICATED, "it was given another receiver's key")
    assert failed(zmq.EVENT_HANDSHAKE_FAILED_AUTH, 400)[0] is RefusalReason.UNAUTHENTICATED
    reason, detail = failed(zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL, int(zmq.PROTOCOL_ERROR_ZMTP_INVALID_METADATA))
    assert (reason, "0x10000018" in detail) == (RefusalReason.HANDSHAKE, True)
    assert failed(zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL, 0)[0] is RefusalReason.HANDSHAKE


def test_frequent_notices_are_counted_and_reported_at_intervals() -> None:
    throttle = NoticeThrottle(2, 10.0)
    assert [throttle.admit("refused", float(second)) for second in range(4)] == [0, 0, None, None]
    assert throttle.admit("gone", 3.0) == 0, "each kind has its own share"
    assert [throttle.admit("refused", at) for at in (10.0, 11.0, 20.0)] == [2, None, 1]
    assert [throttle.admit("refused", at) for at in (100.0, 100.0, 100.0)] == [0, 0, None]

"""If these fail, a sample is run twice, or never: a group waits for ever or trains on a duplicate."""

from __future__ import annotations

from actors.scheduler.request_queue import RolloutRequestQueue, request_key
from protocol.events import JsonValue
from protocol.trajectory import GroupId, InfraFailure, RolloutRequest


def request(sample: int) -> RolloutRequest:
    return RolloutRequest("run", GroupId(1), sample, 8, "task", 7)


def emitted(kind: str, **fields: JsonValue) -> None:
    assert (kind, fields["trajectory"]) == ("rollout_request.reissued", request(0).trajectory_id)


def test_a_request_is_either_waiting_or_assigned_until_it_is_finished() -> None:
    requests = RolloutRequestQueue()
    requests.add(request(0))
    assert requests.assign("w#1", 5, 1.0, 10.0) == [request(0)]
    assert requests.assign("w#1", 5, 1.0, 10.0) == []
    assert requests.finish(request(0))
    assert not requests.finish(request(0))
    assert not requests.assigned


def test_a_reissued_sample_goes_first_and_a_late_reply_of_the_first_attempt_does_not_finish_it() -> None:
    requests = RolloutRequestQueue()
    requests.add(request(0))
    requests.add(request(1))
    requests.assign("w#1", 1, 1.0, 10.0)
    assert [out.request for out in requests.reclaim_overdue(11.0)] == [request(0)]
    again = requests.reissue(request(0), InfraFailure.WORKER_DIED, emitted)
    assert again.attempt == 1
    assert requests.assign("w#2", 1, 1.0, 20.0) == [again]
    assert not requests.finish(request(0))
    assert request_key(again) in requests.assigned


def test_a_request_remembers_how_often_its_sandbox_vanished() -> None:
    requests = RolloutRequestQueue()
    first = requests.reissue(request(0), InfraFailure.SANDBOX_VANISHED, emitted)
    second = requests.reissue(first, InfraFailure.ENGINE, emitted)
    assert (first.vanished_sandboxes, second.vanished_sandboxes, second.attempt) == (1, 1, 2)


def test_only_earlier_incarnations_of_a_worker_lose_their_requests() -> None:
    requests = RolloutRequestQueue()
    for sample in range(3):
        requests.add(request(sample))
    requests.assign("w0#a", 1, 1.0, 9.0)
    requests.assign("w0#b", 1, 1.0, 9.0)
    requests.assign("w1#a", 1, 1.0, 9.0)
    assert [out.request for out in requests.reclaim_from_worker("w0", except_incarnation="w0#b")] == [request(0)]
    assert {out.worker for out in requests.assigned.values()} == {"w0#b", "w1#a"}


def test_clearing_the_queue_drops_waiting_and_assigned_requests() -> None:
    requests = RolloutRequestQueue()
    for sample in range(3):
        requests.add(request(sample))
    requests.hold_back(request(3))
    requests.assign("w#1", 2, 1.0, 9.0)
    assert requests.clear() == 4
    assert len(requests) == 0

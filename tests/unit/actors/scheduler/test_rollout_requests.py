"""If these fail, a sample is run twice, or never: a group waits for ever or trains on a duplicate."""

from __future__ import annotations

from actors.scheduler.request_queue import RolloutRequestQueue, request_key
from protocol.trajectory import GroupId, InfraFailure, RolloutRequest


def ticket(sample: int) -> RolloutRequest:
    return RolloutRequest("run", GroupId(1), sample, 8, "task", 7)


def test_a_ticket_is_in_one_place_until_it_is_finished() -> None:
    tickets = RolloutRequestQueue()
    tickets.add(ticket(0))
    assert tickets.assign("w#1", 5, 1.0, 10.0) == [ticket(0)]
    assert tickets.assign("w#1", 5, 1.0, 10.0) == []
    assert tickets.finish(ticket(0))
    assert not tickets.finish(ticket(0))
    assert not tickets.assigned


def test_a_reissued_sample_goes_first_and_a_late_reply_of_the_first_attempt_does_not_finish_it() -> None:
    tickets = RolloutRequestQueue()
    tickets.add(ticket(0))
    tickets.add(ticket(1))
    tickets.assign("w#1", 1, 1.0, 10.0)
    assert [out.request for out in tickets.reclaim_overdue(11.0)] == [ticket(0)]
    again = tickets.reissue(ticket(0), InfraFailure.WORKER_DIED)
    assert again.attempt == 1
    assert tickets.assign("w#2", 1, 1.0, 20.0) == [again]
    assert not tickets.finish(ticket(0))
    assert request_key(again) in tickets.assigned


def test_a_ticket_remembers_how_often_its_sandbox_vanished() -> None:
    tickets = RolloutRequestQueue()
    first = tickets.reissue(ticket(0), InfraFailure.SANDBOX_VANISHED)
    second = tickets.reissue(first, InfraFailure.ENGINE)
    assert (first.vanished_sandboxes, second.vanished_sandboxes, second.attempt) == (1, 1, 2)


def test_only_earlier_incarnations_of_a_worker_lose_their_tickets() -> None:
    tickets = RolloutRequestQueue()
    for sample in range(3):
        tickets.add(ticket(sample))
    tickets.assign("w0#a", 1, 1.0, 9.0)
    tickets.assign("w0#b", 1, 1.0, 9.0)
    tickets.assign("w1#a", 1, 1.0, 9.0)
    assert [out.request for out in tickets.reclaim_from_worker("w0", except_incarnation="w0#b")] == [ticket(0)]
    assert {out.worker for out in tickets.assigned.values()} == {"w0#b", "w1#a"}


def test_clearing_the_queue_drops_what_waits_and_what_is_assigned() -> None:
    tickets = RolloutRequestQueue()
    for sample in range(3):
        tickets.add(ticket(sample))
    tickets.hold_back(ticket(3))
    tickets.assign("w#1", 2, 1.0, 9.0)
    assert tickets.clear() == 4
    assert len(tickets) == 0

"""If these fail, a sample is run twice, or never: a group waits for ever or trains on a duplicate."""

from __future__ import annotations

from actors.tickets import Tickets, key_of
from protocol.trajectory import GroupId, InfraFailure, Ticket


def ticket(sample: int, *, purpose: str = "train", attempt: int = 0) -> Ticket:
    return Ticket("run", GroupId(1), sample, 8, "task", 7, attempt, purpose)


def test_a_ticket_is_in_one_place_until_it_is_finished() -> None:
    tickets = Tickets()
    tickets.add(ticket(0))
    assert tickets.hand_out("w#1", 5, 1.0, 10.0) == [ticket(0)]
    assert tickets.hand_out("w#1", 5, 1.0, 10.0) == []
    assert tickets.finish(ticket(0))
    assert not tickets.finish(ticket(0))
    assert not tickets.out


def test_a_reissued_sample_goes_first_and_a_late_reply_of_the_first_attempt_does_not_finish_it() -> None:
    tickets = Tickets()
    tickets.add(ticket(0))
    tickets.add(ticket(1))
    tickets.hand_out("w#1", 1, 1.0, 10.0)
    assert [out.ticket for out in tickets.overdue(11.0)] == [ticket(0)]
    again = tickets.reissue(ticket(0), InfraFailure.WORKER_DIED)
    assert again.attempt == 1
    assert tickets.hand_out("w#2", 1, 1.0, 20.0) == [again]
    assert not tickets.finish(ticket(0))
    assert key_of(again) in tickets.out


def test_a_ticket_remembers_how_often_its_sandbox_vanished() -> None:
    tickets = Tickets()
    first = tickets.reissue(ticket(0), InfraFailure.SANDBOX_VANISHED)
    second = tickets.reissue(first, InfraFailure.ENGINE)
    assert (first.vanished, second.vanished, second.attempt) == (1, 1, 2)


def test_only_earlier_incarnations_of_a_worker_lose_their_tickets() -> None:
    tickets = Tickets()
    for sample in range(3):
        tickets.add(ticket(sample))
    tickets.hand_out("w0#a", 1, 1.0, 9.0)
    tickets.hand_out("w0#b", 1, 1.0, 9.0)
    tickets.hand_out("w1#a", 1, 1.0, 9.0)
    assert [out.ticket for out in tickets.lost_with("w0", except_incarnation="w0#b")] == [ticket(0)]
    assert {out.worker for out in tickets.out.values()} == {"w0#b", "w1#a"}


def test_forgetting_a_purpose_leaves_the_others() -> None:
    tickets = Tickets()
    for sample in range(2):
        tickets.add(ticket(sample))
        tickets.add(ticket(sample, purpose="before"))
    tickets.hand_out("w#1", 2, 1.0, 9.0)
    assert tickets.forget("train") == 2
    assert [ticket.purpose for ticket in tickets.waiting] == ["before"]
    assert [out.ticket.purpose for out in tickets.out.values()] == ["before"]

"""Any order of sends, losses, breaks, deaths and restarts.  If these fail, a trajectory is lost, stored twice or with
the wrong receiver, or waits for ever.

Both halves of the protocol as they are, the receiver's own handling of each message included, and between them networks
that may drop any message but never reorder.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from protocol import codec
from protocol.journal import AppendOutcome
from protocol.messages import Bye, Data, Nack, Refusal, Welcome, read_message, write_message
from protocol.stream import MessageRefused, Received, TrajectoryReceiver, shard_of
from protocol.stream.inbox import Inbox
from protocol.stream.outbox import Outbox
from protocol.trajectory import trajectory_id
from tests.support.trajectories import RUN, make_trajectory

SENDERS, SHARDS = ("a", "b", "c"), 2
LARGEST, WINDOW = 3_000, 8_000
ALL_WINDOWS = 2 * WINDOW - 500
"""Less than the senders' windows together: they have to shrink."""
HOURS_S = 10_000.0

Line = tuple[str, int]
"""Sender and shard: a connection of its own, with an outbox at its end."""
senders, shards = st.sampled_from(SENDERS), st.integers(0, SHARDS - 1)


class Switch:
    """What a receiver answers goes to the sender that has the identity, if that is alive."""

    def __init__(self, deliver: Callable[[bytes, bytes], bool]) -> None:
        self._deliver = deliver

    def send_now(self, frames: Sequence[bytes]) -> bool:
        identity, head = frames
        return self._deliver(identity, head)


async def nobody(_: Sequence[Received]) -> Sequence[AppendOutcome]:
    raise AssertionError("the machine appends by itself")


class Stream(RuleBasedStateMachine):
    """Three senders, two receivers with a store each, a line each way for each pair."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.lives = dict.fromkeys(SENDERS, 0)
        self.outboxes: dict[Line, Outbox] = {}
        self.there: dict[Line, deque[list[bytes | memoryview]]] = {}
        self.back: dict[Line, deque[bytes]] = {}
        self.receivers = [self.new_receiver(shard) for shard in range(SHARDS)]
        self.stores: list[set[str]] = [set() for _ in range(SHARDS)]
        self.given: dict[str, int] = {}
        self.answered: dict[str, AppendOutcome] = {}
        self.refused: set[str] = set()
        self.given_up: set[str] = set()
        self.orphans: set[str] = set()
        """Of senders that died before they were told."""
        for sender in SENDERS:
            self.be_born(sender)

    def new_receiver(self, shard: int) -> TrajectoryReceiver:
        def deliver(identity: bytes, head: bytes) -> bool:
            sender, _, life = identity.decode().partition("/")
            alive = self.lives[sender] == int(life)
            if alive:
                self.back[sender, shard].append(head)
            return alive

        receiver = TrajectoryReceiver(RUN, nobody, max_bytes=LARGEST, window_bytes=WINDOW)
        receiver._inbox = Inbox(RUN, WINDOW, LARGEST, ALL_WINDOWS)
        receiver._wire = Switch(deliver)
        return receiver

    def be_born(self, sender: str) -> None:
        for shard in range(SHARDS):
            self.outboxes[sender, shard] = Outbox(RUN, sender)
            self.there[sender, shard], self.back[sender, shard] = deque(), deque()

    # -- the senders ---------------------------------------------------------------------------------------------

    @rule(sender=senders, sampled=st.integers(1, 200))
    def give(self, sender: str, sampled: int) -> None:
        trajectory = make_trajectory(len(self.given), sampled=sampled)
        frames, ticket = codec.encode(trajectory), trajectory.ticket
        name, size = ticket.trajectory_id, codec.payload_size(frames)
        outbox = self.outboxes[sender, shard_of(ticket.group, SHARDS)]
        if outbox.welcomed and size > LARGEST:
            with pytest.raises(MessageRefused):
                outbox.add(ticket, frames)
        else:
            outbox.add(ticket, frames)
            self.given[name] = size

    @rule(sender=senders, shard=shards)
    def send(self, sender: str, shard: int) -> None:
        outbox = self.outboxes[sender, shard]
        parcel = outbox.next()
        if parcel is not None:
            self.there[sender, shard].append([write_message(Data(outbox.epoch, parcel.seq)), *parcel.frames])

    @rule(sender=senders, shard=shards)
    def heartbeat(self, sender: str, shard: int) -> None:
        self.there[sender, shard].append([write_message(self.outboxes[sender, shard].greeting())])

    @rule(sender=senders, shard=shards, index=st.integers(0, 5))
    def give_up(self, sender: str, shard: int, index: int) -> None:
        """A deadline has passed: nobody waits for it any more."""
        outbox = self.outboxes[sender, shard]
        pending = list(outbox._pending.values())
        if index < len(pending):
            outbox.give_up(pending[index])
            self.given_up.add(pending[index].ticket.trajectory_id)

    @rule(sender=senders, orderly=st.booleans())
    def restart_sender(self, sender: str, orderly: bool) -> None:
        """Another process in its place, under another identity; only one that ends in order says goodbye, and what was
        on its way may still arrive."""
        for shard in range(SHARDS):
            line = sender, shard
            self.orphans |= {*self.outboxes[line].names}
            if orderly:
                self.there[line].append([write_message(Bye())])
            while self.there[line]:
                self.arrive(*line)
        self.lives[sender] += 1
        self.be_born(sender)

    # -- the network ---------------------------------------------------------------------------------------------

    @rule(sender=senders, shard=shards, at=st.integers(0, 5), back=st.booleans())
    def lose(self, sender: str, shard: int, at: int, back: bool) -> None:
        line = self.back[sender, shard] if back else self.there[sender, shard]
        if at < len(line):
            del line[at]

    @rule(sender=senders, shard=shards)
    def break_connection(self, sender: str, shard: int) -> None:
        self.there[sender, shard].clear()
        self.back[sender, shard].clear()

    @rule()
    def hours_pass(self) -> None:
        """Whoever says nothing now is forgotten as soon as somebody comes."""
        self.now += HOURS_S

    # -- the receivers -------------------------------------------------------------------------------------------

    @rule(sender=senders, shard=shards)
    def arrive(self, sender: str, shard: int) -> None:
        if self.there[sender, shard]:
            identity = f"{sender}/{self.lives[sender]}".encode()
            frames = [memoryview(frame) for frame in self.there[sender, shard].popleft()]
            self.receivers[shard]._take(identity, frames, self.now)

    @rule(shard=shards)
    def append(self, shard: int) -> None:
        receiver, store = self.receivers[shard], self.stores[shard]
        if not receiver._waiting:
            return
        batch, outcomes = receiver._batch(), list[AppendOutcome]()
        for waiting in batch:
            name = waiting.item.summary.ticket.trajectory_id
            outcomes.append(AppendOutcome.DUPLICATE if name in store else AppendOutcome.APPENDED)
            store.add(name)
        receiver._acknowledge(batch, outcomes)

    @rule(shard=shards, kept=st.booleans())
    def restart_receiver(self, shard: int, kept: bool) -> None:
        """What was not appended is gone, and everything that was counted; the store is on the disk.  What a sender's
        ZeroMQ had not handed to the network may reach the new one."""
        self.receivers[shard] = self.new_receiver(shard)
        for sender in SENDERS:
            self.back[sender, shard].clear()
            if not kept:
                self.there[sender, shard].clear()

    @rule(sender=senders, shard=shards)
    def hear(self, sender: str, shard: int) -> None:
        if not self.back[sender, shard]:
            return
        message = read_message(self.back[sender, shard].popleft())
        for parcel, answer in self.outboxes[sender, shard].take(message):
            assert parcel.ticket.trajectory_id not in self.answered, "answered twice"
            if isinstance(answer, MessageRefused):
                assert parcel.size > LARGEST
                self.refused.add(parcel.ticket.trajectory_id)
            else:
                self.answered[parcel.ticket.trajectory_id] = answer

    # -- what always holds ---------------------------------------------------------------------------------------

    @invariant()
    def nothing_is_acknowledged_that_is_not_stored(self) -> None:
        assert self.answered.keys() <= set().union(*self.stores)

    @invariant()
    def everything_is_stored_where_its_group_is(self) -> None:
        for shard, store in enumerate(self.stores):
            assert store <= {trajectory_id(group, 0) for group in range(shard, len(self.given), SHARDS)}

    @invariant()
    def nothing_is_forgotten(self) -> None:
        pending = {name for outbox in self.outboxes.values() for name in outbox.names}
        fates = (pending, {*self.answered}, self.refused, self.given_up, self.orphans - {*self.answered} - self.refused)
        assert set().union(*fates) == self.given.keys()
        assert sum(map(len, fates)) == len(self.given), "one fate each"

    @invariant()
    def a_sender_holds_what_it_waits_for_and_nothing_else(self) -> None:
        for outbox in self.outboxes.values():
            assert outbox.bytes == sum(self.given[name] for name in outbox.names)
            assert outbox._unsent.keys() <= outbox._pending.keys()

    @invariant()
    def a_receiver_holds_no_more_than_the_window_of_each_epoch_and_refuses_nothing_for_good(self) -> None:
        for receiver in self.receivers:
            held: dict[int, int] = {}
            for waiting in receiver._waiting:
                held[id(waiting.peer)] = held.get(id(waiting.peer), 0) + waiting.size
            assert all(size <= WINDOW for size in held.values())
            assert receiver.statistics().pending_bytes == sum(held.values())
            assert receiver.statistics().refused.keys() <= {Refusal.OVER_CREDIT}, "it forgot what it had granted"

    def teardown(self) -> None:
        """From here on nothing is lost: then everything is answered after a few heartbeats."""
        for _ in range(6 + 2 * len(self.given)):
            for line in self.outboxes:
                self.heartbeat(*line)
                self.settle()
        assert not any(map(len, self.outboxes.values()))
        stored = set().union(*self.stores)
        waited_for = self.given.keys() - self.given_up - self.orphans
        assert stored >= {name for name in waited_for if self.given[name] <= LARGEST}

    def settle(self) -> None:
        """All messages go through."""
        while any(self.there.values()) or any(self.back.values()) or any(each._waiting for each in self.receivers):
            for line in self.outboxes:
                while self.there[line]:
                    self.arrive(*line)
            for shard in range(SHARDS):
                self.append(shard)
            for line in self.outboxes:
                while self.back[line]:
                    self.hear(*line)
                self.send(*line)


def test_a_receiver_that_forgot_what_it_had_granted_is_asked_again_and_costs_nothing() -> None:
    outbox = Outbox(RUN, "a")
    ticket = make_trajectory().ticket
    outbox.add(ticket, [bytes(100)])
    outbox.take(Welcome(1, WINDOW, LARGEST))
    parcel = outbox.next()
    assert parcel is not None
    assert outbox.take(Nack(parcel.seq, Refusal.OVER_CREDIT.value, "")) == []
    assert (outbox.names, outbox.epoch, outbox.next()) == ([ticket.trajectory_id], 2, None)
    outbox.take(Welcome(2, WINDOW, LARGEST))
    assert outbox.next() is parcel


TestStream = Stream.TestCase
TestStream.settings = settings(max_examples=60, stateful_step_count=60, deadline=None)

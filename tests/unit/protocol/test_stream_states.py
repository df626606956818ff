"""Any order of sends, losses, breaks and restarts.  If these fail, a trajectory is lost, stored twice, or waits for
ever.

The two halves of the protocol as they are, and between them a network that may drop any message but never reorders.
"""

from __future__ import annotations

from collections import deque

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from protocol.journal import AppendOutcome
from protocol.messages import Ack, Data, Hello, Message, Nack, Ping, Refusal, Resync, read_message, write_message
from protocol.stream.errors import MessageRefused
from protocol.stream.inbox import Inbox, Peer, Refused
from protocol.stream.outbox import Outbox

RUN = "run"
LARGEST, WINDOW = 40, 100
SENDERS = (b"a", b"b")


class Stream(RuleBasedStateMachine):
    """Two senders, one receiver with a store, a line each way for each sender."""

    def __init__(self) -> None:
        super().__init__()
        self.outboxes = {name: Outbox(RUN, name.decode()) for name in SENDERS}
        self.there: dict[bytes, deque[tuple[bytes, str, int]]] = {name: deque() for name in SENDERS}
        self.back: dict[bytes, deque[bytes]] = {name: deque() for name in SENDERS}
        self.inbox = Inbox(RUN, WINDOW, LARGEST, 2 * WINDOW - 20)
        self.waiting: list[tuple[bytes, Peer, int, str, int]] = []
        self.store: set[str] = set()
        self.given: dict[str, int] = {}
        self.answered: dict[str, AppendOutcome] = {}
        self.refused: set[str] = set()

    # -- the senders ---------------------------------------------------------------------------------------------

    @rule(name=st.sampled_from(SENDERS), size=st.integers(1, LARGEST + 5))
    def give(self, name: bytes, size: int) -> None:
        known = f"{name.decode()}{len(self.given)}"
        outbox = self.outboxes[name]
        if outbox.welcomed and size > LARGEST:
            with pytest.raises(MessageRefused):
                outbox.add(known, [bytes(size)])
        else:
            outbox.add(known, [bytes(size)])
            self.given[known] = size

    @rule(name=st.sampled_from(SENDERS))
    def send(self, name: bytes) -> None:
        parcel = self.outboxes[name].next()
        if parcel is not None:
            head = write_message(Data(self.outboxes[name].epoch, parcel.seq))
            self.there[name].append((head, parcel.name, parcel.size))

    @rule(name=st.sampled_from(SENDERS))
    def heartbeat(self, name: bytes) -> None:
        self.there[name].append((write_message(self.outboxes[name].greeting()), "", 0))

    # -- the network ---------------------------------------------------------------------------------------------

    @rule(name=st.sampled_from(SENDERS), at=st.integers(0, 5), back=st.booleans())
    def lose(self, name: bytes, at: int, back: bool) -> None:
        line = self.back[name] if back else self.there[name]
        if at < len(line):
            del line[at]

    @rule(name=st.sampled_from(SENDERS))
    def break_connection(self, name: bytes) -> None:
        self.there[name].clear()
        self.back[name].clear()

    # -- the receiver --------------------------------------------------------------------------------------------

    @precondition(lambda self: any(self.there.values()))
    @rule(name=st.sampled_from(SENDERS))
    def arrive(self, name: bytes) -> None:
        if not self.there[name]:
            return
        head, known, size = self.there[name].popleft()
        match message := read_message(head):
            case Hello():
                self.reply(name, self.inbox.hello(name, message, 0.0))
            case Ping():
                self.reply(name, self.inbox.ping(name, message))
            case Data():
                taken = self.inbox.data(name, message, size)
                if isinstance(taken, Peer):
                    self.waiting.append((name, taken, message.seq, known, size))
                elif isinstance(taken, Refused):
                    assert taken.reason is Refusal.OVERSIZED, "a sender of ours overdrew its credit"
                    self.reply(name, Nack(message.seq, taken.reason.value, taken.detail))
                elif isinstance(taken, Resync):
                    self.reply(name, taken)
            case _:
                raise AssertionError(message)

    @rule(count=st.integers(1, 4))
    def append(self, count: int) -> None:
        batch, self.waiting = self.waiting[:count], self.waiting[count:]
        for name, peer, seq, known, size in batch:
            outcome = AppendOutcome.DUPLICATE if known in self.store else AppendOutcome.APPENDED
            self.store.add(known)
            peer.done += size
            self.reply(name, Ack(peer.epoch, self.inbox.credit(peer), [seq], [outcome.value]))

    @rule()
    def restart_receiver(self) -> None:
        """What was not appended is gone, and everything that was counted; the store is on the disk."""
        self.inbox = Inbox(RUN, WINDOW, LARGEST, 2 * WINDOW - 20)
        self.waiting.clear()
        for name in SENDERS:
            self.break_connection(name)

    def reply(self, name: bytes, message: Message | Refused) -> None:
        assert not isinstance(message, Refused)
        self.back[name].append(write_message(message))

    @rule(name=st.sampled_from(SENDERS))
    def hear(self, name: bytes) -> None:
        if self.back[name]:
            for parcel, answer in self.outboxes[name].take(read_message(self.back[name].popleft())):
                assert parcel.name not in self.answered, "answered twice"
                if isinstance(answer, MessageRefused):
                    assert parcel.size > LARGEST
                    self.refused.add(parcel.name)
                else:
                    self.answered[parcel.name] = answer

    # -- what always holds ---------------------------------------------------------------------------------------

    @invariant()
    def nothing_is_acknowledged_that_is_not_stored(self) -> None:
        assert self.answered.keys() <= self.store

    @invariant()
    def nothing_is_forgotten(self) -> None:
        pending = {name for outbox in self.outboxes.values() for name in outbox.names}
        assert pending | self.answered.keys() | self.refused == self.given.keys()
        assert not pending & (self.answered.keys() | self.refused)

    @invariant()
    def the_receiver_holds_no_more_than_the_window_of_each_epoch(self) -> None:
        held: dict[Peer, int] = {}
        for _, peer, _, _, size in self.waiting:
            held[peer] = held.get(peer, 0) + size
        assert all(size <= WINDOW for size in held.values())

    def teardown(self) -> None:
        """From here on nothing is lost: then everything is answered after a few heartbeats."""
        for _ in range(6 + 2 * len(self.given)):
            for name in SENDERS:
                self.heartbeat(name)
                while self.there[name] or self.waiting or self.back[name]:
                    while self.there[name]:
                        self.arrive(name)
                    self.append(len(self.waiting))
                    for each in SENDERS:
                        while self.back[each]:
                            self.hear(each)
                    self.send(name)
        assert self.answered.keys() | self.refused == self.given.keys()
        assert self.store >= {name for name, size in self.given.items() if size <= LARGEST}


TestStream = Stream.TestCase
TestStream.settings = settings(max_examples=60, stateful_step_count=60, deadline=None)

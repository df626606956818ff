"""Any order of sends, losses, breaks, deaths and restarts.  If these fail, a trajectory is lost, stored twice or with
the wrong receiver, or waits for ever.

Both halves of the protocol as they are, the receiver's own handling of each message included, and between them networks
that may drop, repeat and overtake any message.  Most of it happens to what is on its way after credit was given, and
much of that is answered before the network is mended: the test counts both.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Sequence
from enum import StrEnum
from itertools import product
from typing import ClassVar, TypeVar

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from protocol import codec
from protocol.journal import AppendOutcome
from protocol.stream import DEFAULT_BATCH_BYTES, MessageRefusedError
from protocol.stream.inbox import SenderEpoch, StreamInbox
from protocol.stream.message_handler import StreamMessageHandler
from protocol.stream.messages import (
    STREAM_PROTOCOL_VERSION,
    RefusalReason,
    StreamAck,
    StreamBye,
    StreamData,
    StreamHello,
    StreamNack,
    StreamPing,
    StreamResync,
    StreamState,
    StreamWelcome,
    decode_message,
    encode_message,
)
from protocol.stream.notices import PeerNotices
from protocol.stream.outbox import StreamOutbox
from protocol.trajectory import make_trajectory_id
from tests.support.runs.trajectories import RUN, make_trajectory

SENDERS, SHARDS = ("a", "b", "c"), 2
LARGEST, WINDOW = 3_000, 8_000
ALL_WINDOWS = 2 * WINDOW - 500
"""Less than the senders' windows together: they have to shrink."""
HOURS_S = 10_000.0

T = TypeVar("T")
Head = bytes | memoryview

Line = tuple[str, int]
"""Sender and shard: a connection of its own, with an outbox at its end."""
LINES = tuple(product(SENDERS, range(SHARDS)))
senders, shards, lines = st.sampled_from(SENDERS), st.integers(0, SHARDS - 1), st.sampled_from(LINES)


class Mishap(StrEnum):
    """Faults that a network may apply to a message."""

    DROPPED = "dropped"
    REPEATED = "repeated"
    OVERTAKEN = "overtaken"
    """By the one behind it."""


mishaps = st.sampled_from([Mishap.DROPPED, *Mishap])


class Stream(RuleBasedStateMachine):
    """Three senders, two receivers with a store each, a line each way for each pair.  A rule that finds nothing to move
    on its line takes the next one where there is something."""

    seen: ClassVar[Counter[tuple[Mishap, str]]] = Counter()
    """Over all examples: what was answered after this had befallen its data or its acknowledgement, before the end."""

    def __init__(self) -> None:
        super().__init__()
        self.befell: dict[str, set[tuple[Mishap, str]]] = {}
        """Trajectory → what, and to which kind of message."""
        self.mended = False
        """The end has begun."""
        self.now = 0.0
        self.lives = dict.fromkeys(SENDERS, 0)
        self.outboxes: dict[Line, StreamOutbox] = {}
        self.there: dict[Line, deque[list[bytes | memoryview]]] = {}
        self.back: dict[Line, deque[bytes]] = {}
        self.receivers = [self.new_receiver(shard) for shard in range(SHARDS)]
        self.stores: list[set[str]] = [set() for _ in range(SHARDS)]
        self.sent: dict[str, int] = {}
        self.answered: dict[str, AppendOutcome] = {}
        self.refused: set[str] = set()
        self.given_up: set[str] = set()
        self.orphans: set[str] = set()
        """Messages of senders that died before the acknowledgement."""
        for sender in SENDERS:
            self.be_born(sender)

    def new_receiver(self, shard: int) -> tuple[StreamMessageHandler, PeerNotices]:
        def deliver(identity: bytes, head: bytes) -> bool:
            sender, _, life = identity.decode().partition("/")
            alive = self.lives[sender] == int(life)
            if alive:
                self.back[sender, shard].append(head)
            return alive

        notices = PeerNotices(lambda: self.now, on_refused=None, on_unroutable=None, on_disconnected=None)
        inbox = StreamInbox(RUN, WINDOW, LARGEST, ALL_WINDOWS)
        return StreamMessageHandler(inbox, deliver, notices, batch_bytes=DEFAULT_BATCH_BYTES), notices

    def be_born(self, sender: str) -> None:
        for shard in range(SHARDS):
            self.outboxes[sender, shard] = StreamOutbox(RUN, sender)
            self.there[sender, shard], self.back[sender, shard] = deque(), deque()

    @initialize(
        strangers=st.sets(lines, max_size=2), first=st.lists(senders, max_size=5), mishap=mishaps, there=st.booleans()
    )
    def begin(self, strangers: set[Line], first: list[str], mishap: Mishap, there: bool) -> None:
        """Most lines have credit from the first moment on, and something went wrong already."""
        for line in LINES:
            if line not in strangers:
                self.goes_well(line, 1)
        self.goes_wrong_on_the_way("a", 5, 0, mishap, there, 2)
        for sender in first:
            self.give(sender, 5)

    # -- the senders ---------------------------------------------------------------------------------------------

    @rule(sender=senders, sampled=st.integers(1, 200))
    def give(self, sender: str, sampled: int) -> None:
        trajectory = make_trajectory(len(self.sent), sampled=sampled)
        frames, request = codec.encode_trajectory(trajectory), trajectory.request
        name, size = request.trajectory_id, codec.payload_size(frames)
        outbox = self.outboxes[sender, request.group % SHARDS]
        if outbox.welcomed and size > LARGEST:
            with pytest.raises(MessageRefusedError):
                outbox.add(request, frames)
        else:
            outbox.add(request, frames)
            self.sent[name] = size

    @precondition(lambda self: any(map(len, self.outboxes.values())))
    @rule(line=lines, most=st.integers(1, 3))
    def send(self, line: Line, most: int) -> None:
        for each in after(line):
            if self.sends(each, most):
                return

    def sends(self, line: Line, most: int) -> bool:
        """Whether there was one that could leave."""
        outbox = self.outboxes[line]
        for number in range(most):
            if (parcel := outbox.next_to_send()) is None:
                return number > 0
            self.there[line].append([encode_message(StreamData(outbox.epoch, parcel.seq)), *parcel.frames])
        return True

    @rule(line=lines)
    def heartbeat(self, line: Line) -> None:
        self.there[line].append([encode_message(self.outboxes[line].heartbeat_message())])

    @precondition(lambda self: any(map(len, self.outboxes.values())))
    @rule(line=lines, index=st.integers(0, 5))
    def give_up(self, line: Line, index: int) -> None:
        """A deadline has passed: nobody waits for it any more."""
        outbox = self.outboxes[line]
        pending = list(outbox.pending.values())
        if index < len(pending):
            outbox.abandon(pending[index])
            self.given_up.add(pending[index].request.trajectory_id)

    @rule(sender=senders, orderly=st.booleans())
    def restart_sender(self, sender: str, orderly: bool) -> None:
        """Another process in its place, under another identity; only one that ends in order says goodbye, and what was
        on its way may still arrive."""
        for shard in range(SHARDS):
            line = sender, shard
            self.orphans |= {*self.outboxes[line].unacknowledged_ids}
            if orderly:
                self.there[line].append([encode_message(StreamBye())])
            while self.there[line]:
                self.arrives(line)
        self.lives[sender] += 1
        self.be_born(sender)

    # -- the network ---------------------------------------------------------------------------------------------

    @precondition(lambda self: any(self.there.values()))
    @rule(line=lines, at=st.integers(0, 5), mishap=mishaps)
    def befalls(self, line: Line, at: int, mishap: Mishap) -> None:
        line = next(each for each in after(line) if self.there[each])
        heads = [frames[0] for frames in self.there[line]]
        self.note(mishap, line, spoil(self.there[line], heads, at, mishap))

    @precondition(lambda self: any(self.back.values()))
    @rule(line=lines, at=st.integers(0, 5), mishap=mishaps)
    def befalls_an_answer(self, line: Line, at: int, mishap: Mishap) -> None:
        line = next(each for each in after(line) if self.back[each])
        self.note(mishap, line, spoil(self.back[line], [*self.back[line]], -1 - at, mishap))  # the last is the newest

    def note(self, mishap: Mishap, line: Line, heads: Iterable[Head]) -> None:
        pending = self.outboxes[line].pending
        for message in map(decode_message, heads):
            seqs = (
                message.seqs
                if isinstance(message, StreamAck)
                else [message.seq]
                if isinstance(message, StreamData)
                else []
            )
            kind = type(message).__name__
            for name in (pending[seq].request.trajectory_id for seq in seqs if seq in pending):
                self.befell.setdefault(name, set()).add((mishap, kind))

    @rule(line=lines)
    def break_connection(self, line: Line) -> None:
        self.note(Mishap.DROPPED, line, [*(frames[0] for frames in self.there[line]), *self.back[line]])
        self.there[line].clear()
        self.back[line].clear()

    @rule(
        sender=senders,
        sampled=st.integers(1, 200),
        at=st.integers(0, 5),
        mishap=mishaps,
        there=st.booleans(),
        beats=st.integers(0, 3),
    )
    def goes_wrong_on_the_way(
        self, sender: str, sampled: int, at: int, mishap: Mishap, there: bool, beats: int
    ) -> None:
        """A trajectory all the way to the store and its answer all the way back, with one mishap to what its line has
        on it in one direction; then ``beats`` heartbeats without any."""
        line = sender, len(self.sent) % SHARDS
        if not self.outboxes[line].welcomed:
            self.goes_well(line, 1)
        self.give(sender, sampled)
        self.sends(line, 3)
        self.heartbeat(line)
        if there:
            self.befalls(line, at, mishap)
        while self.there[line]:
            self.arrives(line)
        while self.receivers[line[1]][0].waiting:
            self.append(line[1])
        if not there and self.back[line]:
            self.befalls_an_answer(line, at, mishap)
        while self.back[line]:
            self.hears(line)
        self.goes_well(line, beats)

    @rule(line=lines, beats=st.integers(1, 4))
    def all_goes_well(self, line: Line, beats: int) -> None:
        """On one line, for a while."""
        line = next((each for each in after(line) if len(self.outboxes[each])), line)
        self.goes_well(line, beats)

    def goes_well(self, line: Line, beats: int) -> None:
        for _ in range(beats):
            self.heartbeat(line)
            self.settle([line])

    @rule()
    def hours_pass(self) -> None:
        """Whoever says nothing now is forgotten as soon as somebody comes."""
        self.now += HOURS_S

    # -- the receivers -------------------------------------------------------------------------------------------

    @precondition(lambda self: any(self.there.values()))
    @rule(line=lines, most=st.integers(1, 3))
    def arrive(self, line: Line, most: int) -> None:
        line = next(each for each in after(line) if self.there[each])
        for _ in range(min(most, len(self.there[line]))):
            self.arrives(line)

    def arrives(self, line: Line) -> None:
        sender, shard = line
        identity = f"{sender}/{self.lives[sender]}".encode()
        frames = [memoryview(frame) for frame in self.there[line].popleft()]
        self.receivers[shard][0].handle_message(identity, frames, self.now)

    @rule(shard=shards)
    def append(self, shard: int) -> None:
        (receiver, _), store = self.receivers[shard], self.stores[shard]
        if not receiver.waiting:
            return
        batch, outcomes = receiver.take_batch(), list[AppendOutcome]()
        for waiting in batch:
            name = waiting.item.summary.request.trajectory_id
            outcomes.append(AppendOutcome.DUPLICATE if name in store else AppendOutcome.APPENDED)
            store.add(name)
        receiver.acknowledge(batch, outcomes)

    @rule(shard=shards, kept=st.booleans())
    def restart_receiver(self, shard: int, kept: bool) -> None:
        """The receiver loses everything not appended and all its counters; the store is on the disk. Messages still in
        a sender's ZeroMQ may reach the new receiver."""
        self.receivers[shard] = self.new_receiver(shard)
        for sender in SENDERS:
            self.back[sender, shard].clear()
            if not kept:
                self.there[sender, shard].clear()

    @precondition(lambda self: any(self.back.values()))
    @rule(line=lines, most=st.integers(1, 3))
    def hear(self, line: Line, most: int) -> None:
        line = next(each for each in after(line) if self.back[each])
        for _ in range(min(most, len(self.back[line]))):
            self.hears(line)

    def hears(self, line: Line) -> None:
        message = decode_message(self.back[line].popleft())
        for parcel, answer in self.outboxes[line].handle_message(message):
            assert parcel.request.trajectory_id not in self.answered, "answered twice"
            if isinstance(answer, MessageRefusedError):
                assert parcel.size > LARGEST
                self.refused.add(parcel.request.trajectory_id)
            else:
                self.answered[parcel.request.trajectory_id] = answer
                if not self.mended:
                    self.seen.update(self.befell.get(parcel.request.trajectory_id, ()))

    # -- what always holds ---------------------------------------------------------------------------------------

    @invariant()
    def nothing_is_acknowledged_that_is_not_stored(self) -> None:
        assert self.answered.keys() <= set().union(*self.stores)

    @invariant()
    def everything_is_stored_where_its_group_is(self) -> None:
        for shard, store in enumerate(self.stores):
            assert store <= {make_trajectory_id(group, 0) for group in range(shard, len(self.sent), SHARDS)}

    @invariant()
    def nothing_is_forgotten(self) -> None:
        pending = {name for outbox in self.outboxes.values() for name in outbox.unacknowledged_ids}
        fates = (pending, {*self.answered}, self.refused, self.given_up, self.orphans - {*self.answered} - self.refused)
        assert set().union(*fates) == self.sent.keys()
        assert sum(map(len, fates)) == len(self.sent), "one fate each"

    @invariant()
    def a_sender_holds_what_it_waits_for_and_nothing_else(self) -> None:
        for outbox in self.outboxes.values():
            assert outbox.bytes == sum(self.sent[name] for name in outbox.unacknowledged_ids)
            assert outbox.unsent.keys() <= outbox.pending.keys()

    @invariant()
    def a_receiver_holds_no_more_than_the_window_of_each_epoch_and_refuses_nothing_for_good(self) -> None:
        for receiver, notices in self.receivers:
            held: dict[int, int] = {}
            for waiting in receiver.waiting:
                held[id(waiting.peer)] = held.get(id(waiting.peer), 0) + waiting.size
            assert all(size <= WINDOW for size in held.values())
            assert receiver.waiting_bytes == sum(held.values())
            assert notices.refused.keys() <= {RefusalReason.OVER_CREDIT}, "it forgot what it had granted"

    def teardown(self) -> None:
        """From here on nothing is lost: then everything is answered after a few heartbeats."""
        self.mended = True
        for _ in range(6 + 2 * len(self.sent)):
            for line in LINES:
                self.heartbeat(line)
                self.settle(LINES)
        assert not any(map(len, self.outboxes.values()))
        stored = set().union(*self.stores)
        waited_for = self.sent.keys() - self.given_up - self.orphans
        assert stored >= {name for name in waited_for if self.sent[name] <= LARGEST}

    def settle(self, some: Sequence[Line]) -> None:
        """All messages on these lines go through, and all that may leave does."""
        moving = True
        while moving:
            for line in some:
                while self.there[line]:
                    self.arrives(line)
            for shard in {shard for _, shard in some}:
                while self.receivers[shard][0].waiting:
                    self.append(shard)
            for line in some:
                while self.back[line]:
                    self.hears(line)
            moving = sum(self.sends(line, 1) for line in some) > 0


def after(line: Line) -> Iterable[Line]:
    """All, ``line`` first."""
    at = LINES.index(line)
    return (*LINES[at:], *LINES[:at])


def spoil(messages: deque[T], heads: Sequence[Head], at: int, mishap: Mishap) -> Sequence[Head]:
    """The heads of those to which it happened: none where there is none behind to overtake."""
    at %= len(messages)
    message = messages[at]
    match mishap:
        case Mishap.DROPPED:
            del messages[at]
        case Mishap.REPEATED:
            messages.insert(at, message)
        case Mishap.OVERTAKEN:
            if at + 1 == len(messages):
                return []
            messages[at], messages[at + 1] = messages[at + 1], message
            return heads[at : at + 2]
    return heads[at : at + 1]


def outbox_with_credit(*sizes: int) -> StreamOutbox:
    outbox = StreamOutbox(RUN, "a")
    for group, size in enumerate(sizes):
        outbox.add(make_trajectory(group).request, [bytes(size)])
    outbox.handle_message(StreamWelcome(1, WINDOW, LARGEST))
    return outbox


def test_a_sender_reconnects_without_loss_to_a_receiver_that_forgot_its_credit() -> None:
    outbox = outbox_with_credit(100)
    parcel = outbox.next_to_send()
    assert parcel is not None
    assert outbox.handle_message(StreamNack(parcel.seq, RefusalReason.OVER_CREDIT.value, "")) == []
    assert (outbox.unacknowledged_ids, outbox.epoch, outbox.next_to_send()) == ([parcel.request.trajectory_id], 2, None)
    outbox.handle_message(StreamWelcome(2, WINDOW, LARGEST))
    assert outbox.next_to_send() is parcel


def test_a_lost_acknowledgement_is_noticed_at_the_receivers_next_state_message() -> None:
    """It has answered all that was sent, and one still waits: what waits is sent again, or it waits for ever."""
    outbox = outbox_with_credit(100, 200)
    first, second = outbox.next_to_send(), outbox.next_to_send()
    assert first is not None
    assert second is not None
    assert outbox.heartbeat_message() == StreamPing(1, 300)
    assert outbox.handle_message(StreamState(1, 100, WINDOW)) == []
    assert (outbox.epoch, outbox.next_to_send()) == (1, None), "the second may be on its way still"
    outbox.handle_message(StreamAck(1, WINDOW, [second.seq], ["appended"]))
    assert outbox.handle_message(StreamState(1, 300, WINDOW)) == []
    assert outbox.heartbeat_message() == StreamHello(STREAM_PROTOCOL_VERSION, RUN, "a", 2)
    outbox.handle_message(StreamWelcome(2, WINDOW, LARGEST))
    assert (outbox.next_to_send(), outbox.next_to_send()) == (first, None)


def test_an_unsent_trajectory_does_not_count_as_a_lost_acknowledgement() -> None:
    outbox = outbox_with_credit(100)
    outbox.handle_message(StreamState(1, 0, WINDOW))
    assert outbox.epoch == 1
    assert outbox.next_to_send() is not None


def test_a_receiver_that_counted_too_few_bytes_requests_a_resync() -> None:
    """A broken connection swallowed some: nothing else would tell the sender."""
    inbox = StreamInbox(RUN, WINDOW, LARGEST, ALL_WINDOWS)
    inbox.handle_hello(b"a", StreamHello(STREAM_PROTOCOL_VERSION, RUN, "a", 1), 0.0)
    assert inbox.handle_ping(b"a", StreamPing(1, 0)) == StreamState(1, 0, WINDOW)
    peer = inbox.handle_data(b"a", StreamData(1, 1), 100)
    assert inbox.peers[b"a"] is peer
    assert inbox.handle_ping(b"a", StreamPing(1, 100)) == StreamState(1, 0, WINDOW)
    assert inbox.handle_ping(b"a", StreamPing(1, 300)) == StreamResync(1)
    assert inbox.handle_ping(b"b", StreamPing(1, 0)) == StreamResync(1), "nobody has greeted it"


@pytest.mark.parametrize("there", [True, False])
@pytest.mark.parametrize("at", range(3))
@pytest.mark.parametrize("mishap", Mishap)
def test_heartbeats_recover_from_any_mishap_to_one_message(mishap: Mishap, at: int, there: bool) -> None:
    stream = Stream()
    for beats in (0, 3):
        stream.goes_wrong_on_the_way("a", 5, at, mishap, there, beats)
    stream.goes_well(("a", 0), 3)
    assert len(stream.sent) == len(stream.answered) == 2


def test_nothing_is_lost_stored_twice_or_left_waiting() -> None:
    Stream.seen.clear()
    run_state_machine_as_test(Stream, settings=settings(max_examples=60, stateful_step_count=60, deadline=None))
    assert {(Mishap.DROPPED, "StreamData"), (Mishap.DROPPED, "StreamAck")} <= Stream.seen.keys(), (
        "the network was too kind"
    )


def test_a_hello_does_not_look_at_all_other_senders() -> None:
    """Otherwise ten thousand connections of one peer stop the buffer for half a minute."""
    inbox, looks = StreamInbox(RUN, WINDOW, LARGEST, 4 * WINDOW), list[float]()

    class WatchedPeer(SenderEpoch):
        """Notes when its silence is looked at."""

        def __getattribute__(self, name: str) -> object:
            if name == "last_heard":
                looks.append(0.0)
            return super().__getattribute__(name)

    inbox.peers = {bytes([number]): WatchedPeer("a", 1, 0.0) for number in range(100)}
    for number in range(100):
        inbox.handle_hello(b"other" + bytes([number]), StreamHello(STREAM_PROTOCOL_VERSION, RUN, "b", 1), 1.0)
    assert len(looks) <= 100
    inbox.handle_hello(b"last", StreamHello(STREAM_PROTOCOL_VERSION, RUN, "c", 1), HOURS_S)
    assert [peer.sender for peer in inbox.peers.values()] == ["c"]

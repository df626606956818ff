"""Real sockets on loopback.  If these fail, what a worker was told is safe is lost, trained twice, or fills memory."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import tracemalloc
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
import zmq
import zmq.asyncio
from receiver_process import open_journal

from protocol import codec
from protocol.codec import Frame
from protocol.errors import InfraError, UserError
from protocol.journal import AppendOutcome
from protocol.stream import (
    CurveClient,
    CurveServer,
    MessageRefusedError,
    NotAcknowledgedError,
    ReceivedTrajectory,
    SenderClosedError,
    TrajectoryReceiver,
    TrajectorySender,
    make_run_keys,
)
from protocol.stream.message_handler import StreamMessageHandler
from protocol.stream.messages import (
    STREAM_PROTOCOL_VERSION,
    RefusalReason,
    StreamAck,
    StreamData,
    StreamHello,
    StreamMessage,
    StreamNack,
    StreamPing,
    StreamResync,
    StreamState,
    StreamWelcome,
    decode_message,
    encode_message,
)
from protocol.stream.zmq_sockets import AsyncSocket
from protocol.trajectory import RolloutRequest
from tests.support.runs.trajectories import RUN, make_segment, make_trajectory
from tests.support.stream_keys import RECEIVER_KEYS, SENDER_KEYS

SOON_S = 30.0
BEAT_S = 0.05


class Store:
    """Appends in memory; ``gate`` holds appends back, ``failing`` makes so many of them fail."""

    def __init__(self) -> None:
        self.items: list[ReceivedTrajectory] = []
        self.gate = asyncio.Event()
        self.gate.set()
        self.called = asyncio.Event()
        self.waiting = 0
        self.failing = 0
        self.refused: list[tuple[RefusalReason, str]] = []
        self.details: list[str] = []
        self.gone: list[str] = []
        self.unroutable: list[tuple[str, str]] = []
        self.missed = asyncio.Event()

    async def append(self, items: Sequence[ReceivedTrajectory]) -> list[AppendOutcome]:
        self.called.set()
        self.waiting += 1
        await self.gate.wait()
        self.waiting -= 1
        if self.failing:
            self.failing -= 1
            raise InfraError("disk full")
        known = {item.summary.digest for item in self.items}
        self.items += [item for item in items if item.summary.digest not in known]
        return [AppendOutcome.DUPLICATE if item.summary.digest in known else AppendOutcome.APPENDED for item in items]

    def refuse(self, reason: RefusalReason, sender: str, detail: str) -> None:
        self.refused.append((reason, sender))
        self.details.append(detail)

    def miss(self, sender: str, answer: str) -> None:
        self.unroutable.append((sender, answer))
        self.missed.set()


def receiver_for(store: Store, **changes: object) -> TrajectoryReceiver:
    settings: dict[str, object] = {"max_bytes": 1 << 20, "curve": RECEIVER_KEYS} | changes
    return TrajectoryReceiver(
        RUN,
        store.append,
        on_refused=store.refuse,
        on_unroutable=store.miss,
        on_disconnected=store.gone.append,
        **settings,
    )


def sender_to(receiver: TrajectoryReceiver, name: str = "worker-0", **changes: object) -> TrajectorySender:
    settings: dict[str, object] = {"run_id": RUN, "heartbeat_s": BEAT_S, "curve": SENDER_KEYS} | changes
    return TrajectorySender(receiver.endpoint, sender_id=name, **settings)


class Raw:
    """A peer that says what it likes."""

    def __init__(self, receiver: TrajectoryReceiver, context: zmq.asyncio.Context, identity: bytes = b"") -> None:
        self.socket = context.socket(zmq.DEALER)
        self.socket.linger = 0
        self.socket.setsockopt(zmq.RECONNECT_IVL, -1)  # once thrown out it stays out
        self.socket.curve_publickey, self.socket.curve_secretkey = SENDER_KEYS.public, SENDER_KEYS.secret
        self.socket.curve_serverkey = SENDER_KEYS.server
        if identity:
            self.socket.setsockopt(zmq.ROUTING_ID, identity)
        self.socket.connect(receiver.endpoint)

    async def ask(self, *frames: bytes) -> object:
        await self.socket.send_multipart(frames)
        async with asyncio.timeout(SOON_S):
            return decode_message((await self.socket.recv_multipart())[0])

    async def hello(self, run_id: str = RUN, protocol: int = STREAM_PROTOCOL_VERSION, epoch: int = 1) -> object:
        return await self.ask(encode_message(StreamHello(protocol, run_id, "raw", epoch)))


async def until(holds: Callable[[], object]) -> None:
    """For what ZeroMQ's own thread does, which tells nobody."""
    async with asyncio.timeout(SOON_S):
        while not holds():  # noqa: ASYNC110  a state of another task, not an event
            await asyncio.sleep(0.01)


@contextlib.asynccontextmanager
async def raw_peer(receiver: TrajectoryReceiver, identity: bytes = b"") -> AsyncIterator[Raw]:
    context = zmq.asyncio.Context()
    try:
        yield Raw(receiver, context, identity)
    finally:
        context.destroy(linger=0)


async def test_two_senders_deliver_everything_once_and_nothing_is_acknowledged_before_it_is_stored() -> None:
    store = Store()
    store.gate.clear()
    async with receiver_for(store) as receiver, sender_to(receiver, "a") as a, sender_to(receiver, "b") as b:
        sent = [(sender, make_trajectory(g, s)) for g, sender in enumerate((a, b)) for s in range(4)]
        async with asyncio.timeout(SOON_S), asyncio.TaskGroup() as group:
            sends = [group.create_task(sender.send(trajectory, SOON_S)) for sender, trajectory in sent]
            await store.called.wait()
            assert not any(send.done() for send in sends)
            store.gate.set()
        assert [send.result() for send in sends] == [AppendOutcome.APPENDED] * 8
        assert await a.send(sent[0][1], SOON_S) is AppendOutcome.DUPLICATE
        assert {item.sender for item in store.items} == {"a", "b"}
        assert len(store.items) == 8
        assert a.statistics().unacknowledged == 0
        assert receiver.statistics().acknowledged == 9


@contextlib.contextmanager
def receiver_process(folder: Path, *flags: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """The process and its endpoint, a Unix socket."""
    script = Path(__file__).with_name("receiver_process.py")
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    command = [sys.executable, str(script), str(folder), *flags]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as process:
        assert process.stdout is not None
        try:
            yield process, process.stdout.readline().strip()
        finally:
            process.kill()


async def test_a_receiver_killed_between_append_and_ack_loses_nothing_and_stores_nothing_twice(tmp_path: Path) -> None:
    async def send_all(sender: TrajectorySender, groups: range) -> list[AppendOutcome]:
        return [
            await sender.send(make_trajectory(group, sample, reward=float(sample)), SOON_S)
            for group in groups
            for sample in range(4)
        ]

    async with contextlib.AsyncExitStack() as processes:
        first, endpoint = processes.enter_context(receiver_process(tmp_path, "--die-after-append"))
        async with (
            TrajectorySender(endpoint, RUN, "a", heartbeat_s=BEAT_S) as a,
            TrajectorySender(endpoint, RUN, "b", heartbeat_s=BEAT_S) as b,
            asyncio.TaskGroup() as group,
        ):
            sends = [group.create_task(send_all(a, range(5))), group.create_task(send_all(b, range(5, 10)))]
            assert await asyncio.to_thread(first.wait, SOON_S) == -signal.SIGKILL
            processes.enter_context(receiver_process(tmp_path))
    outcomes = sends[0].result() + sends[1].result()
    assert a.unacknowledged == b.unacknowledged == []
    assert AppendOutcome.DUPLICATE in outcomes
    assert set(outcomes) == {AppendOutcome.APPENDED, AppendOutcome.DUPLICATE}
    journal = open_journal(tmp_path)
    accounting = journal.accounting()
    journal.close()
    assert (accounting.acknowledged, accounting.in_buffer, accounting.superseded, accounting.unknown) == (40, 40, 0, 0)


async def test_a_restarted_receiver_gets_the_trajectories_that_it_has_not_acknowledged() -> None:
    store = Store()
    store.gate.clear()
    async with contextlib.AsyncExitStack() as second, asyncio.timeout(SOON_S):
        async with receiver_for(store) as old:
            port = old.port
            sender = await second.enter_async_context(sender_to(old))
            group = await second.enter_async_context(asyncio.TaskGroup())
            send = group.create_task(sender.send(make_trajectory(), SOON_S))
            await store.called.wait()
        store.gate.set()
        async with receiver_for(store, port=port):
            assert await send is AppendOutcome.APPENDED
        assert sender.statistics().epochs >= 2
    assert len(store.items) == 1


@pytest.mark.parametrize("lost", [StreamData, StreamAck])
async def test_a_message_lost_in_the_network_is_sent_again(
    lost: type[StreamMessage], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A receiver that never saw a message asks for a new epoch; an acknowledgement that never came is missed."""
    store, swallowed = Store(), list[StreamMessage]()
    async with receiver_for(store) as receiver, sender_to(receiver) as sender:
        handle_message, send_now = StreamMessageHandler.handle_message, AsyncSocket.send_now

        def swallows(message: StreamMessage) -> bool:
            if swallowed or not isinstance(message, lost):
                return False
            swallowed.append(message)
            return True

        def handle_most(handler: StreamMessageHandler, identity: bytes, frames: list[memoryview], now: float) -> None:
            if not swallows(decode_message(frames[0])):
                handle_message(handler, identity, frames, now)

        def send_most(socket: AsyncSocket, frames: Sequence[Frame]) -> bool:
            return swallows(decode_message(frames[-1])) or send_now(socket, frames)

        monkeypatch.setattr(StreamMessageHandler, "handle_message", handle_most)
        monkeypatch.setattr(AsyncSocket, "send_now", send_most)
        outcome = await sender.send(make_trajectory(), SOON_S)
    assert outcome is (AppendOutcome.APPENDED if lost is StreamData else AppendOutcome.DUPLICATE)
    assert len(swallowed) == len(store.items) == 1
    assert (sender.statistics().epochs, sender.statistics().sent) == (2, 2)


async def test_a_full_disk_delays_the_acknowledgement_and_loses_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("protocol.stream.receiver.RETRY_S", 0.01)
    store = Store()
    store.failing = 3
    async with receiver_for(store) as receiver, sender_to(receiver) as sender:
        assert await sender.send(make_trajectory(), SOON_S) is AppendOutcome.APPENDED
        assert store.failing == 0


async def test_only_one_more_batch_is_prepared_while_a_batch_is_written() -> None:
    store = Store()
    store.gate.clear()
    async with (
        receiver_for(store, batch_bytes=1) as receiver,
        sender_to(receiver) as sender,
        asyncio.TaskGroup() as group,
    ):
        sends = [group.create_task(sender.send(make_trajectory(g), SOON_S)) for g in range(4)]
        await until(lambda: store.waiting == 2 and receiver.statistics().received == 4)
        async with raw_peer(receiver) as other:  # the receiver has handled all that came before
            await other.hello()
            await other.ask(encode_message(StreamPing(1, 0)))
        assert store.waiting == 2
        assert not any(each.done() for each in sends)
        store.failing = 1
        store.gate.set()
    assert [await each for each in sends] == [AppendOutcome.APPENDED] * 4
    assert store.failing == 0


async def test_credit_holds_a_sender_back_instead_of_growing_the_receiver() -> None:
    store = Store()
    store.gate.clear()
    largest = codec.payload_size(codec.encode_trajectory(make_trajectory(29, sampled=1000)))
    async with (
        receiver_for(store, max_bytes=largest, window_bytes=2 * largest) as receiver,
        sender_to(receiver) as sender,
        asyncio.TaskGroup() as group,
    ):
        sends = [group.create_task(sender.send(make_trajectory(g, sampled=1000), SOON_S)) for g in range(30)]
        await store.called.wait()
        async with raw_peer(receiver) as other:  # the receiver has handled all that came before
            await other.hello()
            await other.ask(encode_message(StreamPing(1, 0)))
        assert receiver.statistics().pending_bytes <= 2 * largest
        assert sender.statistics().sent <= 2
        store.gate.set()
        for send in sends:
            assert await send is AppendOutcome.APPENDED
    assert len(store.items) == 30


async def test_a_foreign_run_is_refused_by_name_and_for_good() -> None:
    store = Store()
    async with receiver_for(store) as receiver, sender_to(receiver, run_id="another") as sender:
        for _ in range(2):
            with pytest.raises(MessageRefusedError, match="another") as caught:
                await sender.send(make_trajectory(run_id="another"), SOON_S)
            assert caught.value.reason is RefusalReason.FOREIGN_RUN
    assert store.refused == [(RefusalReason.FOREIGN_RUN, "worker-0")]


async def test_a_trajectory_that_does_not_belong_here_is_refused_and_the_next_one_is_taken() -> None:
    store = Store()
    evaluation = make_trajectory()
    evaluation = replace(evaluation, request=replace(evaluation.request, purpose="held_out"))
    async with receiver_for(store, max_bytes=4000) as receiver, sender_to(receiver) as sender:
        for trajectory, reason in (
            (evaluation, RefusalReason.NOT_FOR_TRAINING),
            (make_trajectory(run_id="another"), RefusalReason.FOREIGN_RUN),
            (make_trajectory(sampled=5000), RefusalReason.OVERSIZED),
        ):
            with pytest.raises(MessageRefusedError) as caught:
                await sender.send(trajectory, SOON_S)
            assert caught.value.reason is reason
        assert await sender.send(make_trajectory(), SOON_S) is AppendOutcome.APPENDED


async def test_messages_of_a_hostile_peer_are_refused_named_and_counted() -> None:
    store = Store()
    frames = codec.encode_trajectory(make_trajectory())
    size = codec.payload_size(frames)
    limit = size + 100
    async with receiver_for(store, max_bytes=limit) as receiver, raw_peer(receiver) as raw:
        for junk in (b"", b"\x80\x04pickle", b"[]", b'["hello",1]', b'["data","a",1]', b"[" * 5000):
            answer = await raw.ask(junk)
            assert isinstance(answer, StreamNack)
            assert answer.reason == RefusalReason.MALFORMED
        assert isinstance(await raw.ask(encode_message(StreamData(1, 1)), *frames), StreamResync)
        padded = await raw.ask(encode_message(StreamHello(STREAM_PROTOCOL_VERSION, RUN, "raw", 1)), *[bytes(limit)] * 9)
        assert isinstance(padded, StreamNack)
        assert padded.reason == RefusalReason.MALFORMED
        assert (await raw.hello(protocol=99)).reason == RefusalReason.PROTOCOL_VERSION
        assert (await raw.hello(run_id="x")).reason == RefusalReason.FOREIGN_RUN
        assert isinstance(await raw.hello(), StreamWelcome)
        broken = [frames[0], *frames[:0:-1]]
        for seq, (payload, reason) in enumerate(
            (
                (broken, RefusalReason.MALFORMED),
                ([b"x"], RefusalReason.MALFORMED),
                ([bytes(limit + 1)], RefusalReason.OVERSIZED),
                ([bytes(3 * limit)], RefusalReason.OVERSIZED),
            )
        ):
            answer = await raw.ask(encode_message(StreamData(1, seq)), *payload)
            assert answer == StreamNack(seq, reason.value, answer.detail)
    assert not store.items
    assert receiver.statistics().refused == {
        RefusalReason.MALFORMED: 9,
        RefusalReason.PROTOCOL_VERSION: 1,
        RefusalReason.FOREIGN_RUN: 1,
        RefusalReason.OVERSIZED: 2,
    }
    assert (RefusalReason.OVERSIZED, "raw") in store.refused


async def test_a_peer_that_breaks_off_or_sends_an_oversized_message_is_named() -> None:
    store = Store()
    async with receiver_for(store, max_bytes=1000) as receiver:
        _, writer = await asyncio.open_connection("127.0.0.1", receiver.port)
        writer.close()
        await until(lambda: RefusalReason.HANDSHAKE in {reason for reason, _ in store.refused})
        async with raw_peer(receiver) as raw:
            await raw.hello()
            assert not store.gone
            await raw.socket.send_multipart([encode_message(StreamData(1, 1)), bytes(1 << 20)])
            await until(lambda: store.gone)
    assert store.gone[0].startswith("127.0.0.1:")


async def test_a_peer_that_speaks_another_protocol_is_reported_and_does_not_disturb_others() -> None:
    store = Store()
    async with receiver_for(store) as receiver, sender_to(receiver) as sender:
        _, writer = await asyncio.open_connection("127.0.0.1", receiver.port)
        writer.write(b"GET / HTTP/1.1\r\nHost: buffer\r\n" + b"Accept: anything\r\n" * 20 + b"\r\n")
        await writer.drain()
        writer.close()
        await until(lambda: store.refused or store.gone)  # ZeroMQ does not always tell the two apart
        assert {reason for reason, _ in store.refused} <= {RefusalReason.HANDSHAKE, RefusalReason.MALFORMED}
        assert await sender.send(make_trajectory(), SOON_S) is AppendOutcome.APPENDED


async def test_a_peer_that_is_refused_again_and_again_does_not_fill_the_log() -> None:
    store = Store()
    async with receiver_for(store) as receiver, raw_peer(receiver) as raw:
        for _ in range(100):
            await raw.ask(b"junk")
        assert receiver.statistics().refused == {RefusalReason.MALFORMED: 100}
    assert 1 <= len(store.refused) <= 25


async def test_a_sender_that_leaves_says_so_and_makes_room_at_once() -> None:
    """Also behind a large trajectory that nobody waits for any more."""
    async with receiver_for(Store(), max_bytes=1 << 23) as receiver:
        async with sender_to(receiver) as sender, asyncio.TaskGroup() as group:
            await sender.send(make_trajectory(), SOON_S)
            assert receiver.statistics().senders == 1
            send = group.create_task(sender.send(make_trajectory(0, 1, sampled=400_000), SOON_S))
            await until(lambda: sender.statistics().sent == 2)
            send.cancel()
        await until(lambda: receiver.statistics().senders == 0)


async def test_a_peer_that_ignores_its_credit_is_refused() -> None:
    store = Store()
    store.gate.clear()
    frames = codec.encode_trajectory(make_trajectory())
    size = codec.payload_size(frames)
    async with receiver_for(store, max_bytes=size, window_bytes=size) as receiver, raw_peer(receiver) as raw:
        await raw.hello()
        await raw.socket.send_multipart([encode_message(StreamData(1, 1)), *frames])
        answer = await raw.ask(encode_message(StreamData(1, 2)), *frames)
        assert isinstance(answer, StreamNack)
        assert (answer.seq, answer.reason) == (2, RefusalReason.OVER_CREDIT)


async def test_without_a_receiver_the_deadline_ends_the_wait_and_says_so() -> None:
    async with receiver_for(Store()) as gone:
        pass
    async with sender_to(gone) as sender:
        with pytest.raises(NotAcknowledgedError, match="does not answer"):
            await sender.send(make_trajectory(), 0.05)
        assert sender.statistics().unacknowledged == 0


async def test_closing_a_sender_names_its_unacknowledged_trajectories() -> None:
    store = Store()
    store.gate.clear()

    async def expect_closed(sender: TrajectorySender) -> None:
        with pytest.raises(SenderClosedError, match="train-g000003-s01"):
            await sender.send(make_trajectory(3, 1), SOON_S)

    async with receiver_for(store) as receiver, asyncio.TaskGroup() as group:
        async with sender_to(receiver) as sender:
            group.create_task(expect_closed(sender))
            await store.called.wait()
        assert sender.unacknowledged == ["train-g000003-s01"]
        with pytest.raises(SenderClosedError):
            await sender.send(make_trajectory(), SOON_S)


@pytest.mark.skipif(not zmq.has("curve"), reason="libzmq without CURVE")
async def test_with_keys_only_admitted_senders_get_in() -> None:
    store = Store()
    (server, server_secret), (good, good_secret), (bad, bad_secret) = (zmq.curve_keypair() for _ in range(3))
    async with receiver_for(store, curve=CurveServer(server, server_secret, frozenset({good}))) as receiver:
        async with sender_to(receiver, curve=CurveClient(good, good_secret, server)) as sender:
            assert await sender.send(make_trajectory(), SOON_S) is AppendOutcome.APPENDED
        async with sender_to(receiver, curve=CurveClient(bad, bad_secret, server)) as sender:
            with pytest.raises(NotAcknowledgedError):
                await sender.send(make_trajectory(0, 1), 0.5)
        refused_count = len(store.refused)
        with zmq.Context() as context, context.socket(zmq.DEALER) as keyless:
            keyless.linger = 0
            keyless.connect(receiver.endpoint)
            await until(lambda: len(store.refused) > refused_count)
        another, _ = zmq.curve_keypair()
        async with sender_to(receiver, curve=CurveClient(good, good_secret, another)) as sender:
            with pytest.raises(NotAcknowledgedError):
                await sender.send(make_trajectory(0, 3), 0.5)
        await until(lambda: "it was given another receiver's key" in store.details)
    assert len(store.items) == 1
    assert {reason for reason, _ in store.refused} <= {RefusalReason.UNAUTHENTICATED, RefusalReason.HANDSHAKE}
    assert (RefusalReason.UNAUTHENTICATED, bad.decode()) in store.refused
    assert any(name.startswith("127.0.0.1:") for _, name in store.refused), "whose key is not known has an address"


@pytest.mark.skipif(not zmq.has("curve"), reason="libzmq without CURVE")
async def test_the_keys_of_another_run_do_not_open_this_one_and_no_secret_is_printed() -> None:
    """Keys are made per run: what an earlier one left behind, a worker of it say, is refused and named."""
    store, keys, earlier = Store(), make_run_keys(["worker-0"]), make_run_keys(["worker-0"])
    mine = keys.clients["worker-0"]
    left_over = CurveClient(earlier.clients["worker-0"].public, earlier.clients["worker-0"].secret, keys.server.public)
    for shown in (repr(keys), str(mine)):
        assert repr(mine.secret) not in shown
        assert repr(keys.server.secret) not in shown
    async with receiver_for(store, curve=keys.server) as receiver:
        async with sender_to(receiver, curve=left_over) as sender:
            with pytest.raises(NotAcknowledgedError, match="does not answer"):
                await sender.send(make_trajectory(), 0.5)
        assert (RefusalReason.UNAUTHENTICATED, left_over.public.decode()) in store.refused
        async with sender_to(receiver, curve=mine) as sender:
            assert await sender.send(make_trajectory(), SOON_S) is AppendOutcome.APPENDED
    assert len(store.items) == 1


@pytest.mark.parametrize("host", ["127.0.0.1", "::1", "10.1.2.3", "192.168.7.1", "::", "head.example"])
def test_nothing_goes_over_tcp_without_keys(host: str) -> None:
    with pytest.raises(UserError, match="unauthenticated"):
        receiver_for(Store(), host=host, curve=None)
    with pytest.raises(UserError, match="unauthenticated"):
        TrajectorySender(f"tcp://[{host}]:7000" if ":" in host else f"tcp://{host}:7000", RUN, "a")


@pytest.fixture
def sockets(monkeypatch: pytest.MonkeyPatch) -> list[zmq.Socket[bytes]]:
    """ZeroMQ's sockets that the test has opened."""
    opened, open_socket = list[zmq.Socket[bytes]](), zmq.Context.socket

    def noted(context: zmq.Context[zmq.Socket[bytes]], kind: int, **options: object) -> zmq.Socket[bytes]:
        opened.append(open_socket(context, kind, **options))
        return opened[-1]

    monkeypatch.setattr(zmq.Context, "socket", noted)
    return opened


def has_route(router: zmq.Socket[bytes], identity: bytes) -> bool:
    try:
        router.send_multipart([identity, b"?"], zmq.NOBLOCK)
    except zmq.ZMQError as error:
        return error.errno != zmq.EHOSTUNREACH
    return True


async def test_an_undeliverable_acknowledgement_is_reported_and_loses_nothing(
    sockets: list[zmq.Socket[bytes]],
) -> None:
    """The worker's connection ends between append and acknowledgement; when it comes back it learns what happened."""
    store = Store()
    store.gate.clear()
    frames = codec.encode_trajectory(make_trajectory())
    async with receiver_for(store) as receiver:
        async with raw_peer(receiver, b"raw") as raw:
            await raw.hello()
            await raw.socket.send_multipart([encode_message(StreamData(1, 1)), *frames])
            await store.called.wait()
        (router,) = (socket for socket in sockets if socket.type == zmq.ROUTER)
        await until(lambda: not has_route(router, b"raw"))
        store.gate.set()
        async with asyncio.timeout(SOON_S):
            await store.missed.wait()
        assert store.unroutable == [("raw", "ack")]
        assert receiver.statistics().unroutable == 1
        async with raw_peer(receiver, b"raw") as raw:
            assert isinstance(await raw.hello(epoch=2), StreamWelcome)
            answer = await raw.ask(encode_message(StreamData(2, 1)), *frames)
            assert isinstance(answer, StreamAck)
            assert answer.outcomes == ["duplicate"]


async def test_a_connection_that_comes_back_under_its_name_takes_over_from_the_dead_one() -> None:
    """A worker that was cut off reconnects before its old connection is known to be gone."""
    store = Store()
    async with receiver_for(store) as receiver, raw_peer(receiver, b"same") as dead:
        await dead.hello()
        async with raw_peer(receiver, b"same") as new:
            assert isinstance(await new.hello(), StreamWelcome)
            assert await new.ask(encode_message(StreamPing(1, 0))) == StreamState(1, 0, receiver.window_bytes)


async def test_every_heartbeat_and_every_hello_says_the_whole_credit_again() -> None:
    store = Store()
    frames = codec.encode_trajectory(make_trajectory())
    size = codec.payload_size(frames)
    async with receiver_for(store, max_bytes=size, window_bytes=3 * size) as receiver, raw_peer(receiver) as raw:
        assert await raw.hello() == StreamWelcome(1, 3 * size, size)
        await raw.ask(encode_message(StreamData(1, 1)), *frames)
        for _ in range(3):
            assert await raw.ask(encode_message(StreamPing(1, size))) == StreamState(1, size, 4 * size)
            assert await raw.hello() == StreamWelcome(1, 4 * size, size)


async def test_only_the_zeromq_queues_that_send_have_a_bound(sockets: list[zmq.Socket[bytes]]) -> None:
    """What arrives is bounded by credit; at a bound of ZeroMQ's own, a peer that leaves would end this process
    (tests/security/test_hostile_connections.py)."""
    async with receiver_for(Store()) as receiver, sender_to(receiver):
        ends = [socket for socket in sockets if socket.type in {zmq.ROUTER, zmq.DEALER}]
        assert len(ends) == 2
        for end in ends:
            assert end.getsockopt(zmq.SNDHWM) in {512, 1024}, "1000 is what nobody has set"
            assert end.getsockopt(zmq.RCVHWM) == 0


async def test_a_sender_holds_no_more_than_its_budget_and_loses_nothing_by_it() -> None:
    store = Store()
    store.gate.clear()
    size = codec.payload_size(codec.encode_trajectory(make_trajectory(29, sampled=1000)))
    async with (
        receiver_for(store, max_bytes=size, window_bytes=size) as receiver,
        sender_to(receiver, budget_bytes=3 * size) as sender,
        asyncio.TaskGroup() as group,
    ):
        sends = [group.create_task(sender.send(make_trajectory(g, sampled=1000), SOON_S)) for g in range(30)]
        await store.called.wait()
        assert sender.statistics().bytes <= 3 * size
        assert sender.statistics().unacknowledged <= 3
        store.gate.set()
        for send in sends:
            assert await send is AppendOutcome.APPENDED
            assert sender.statistics().bytes <= 3 * size
    assert len(store.items) == 30


async def test_a_large_trajectory_has_its_turn_though_small_ones_keep_coming() -> None:
    """Otherwise the longest episodes would time out and be run again, and the model would learn to be short."""
    store = Store()
    trajectories = [make_trajectory(group, sampled=20_000 if group == 10 else 1000) for group in range(60)]
    largest = codec.payload_size(codec.encode_trajectory(trajectories[10]))
    async with (
        receiver_for(store, batch_bytes=1) as receiver,
        sender_to(receiver, budget_bytes=largest) as sender,
        asyncio.TaskGroup() as group,
    ):
        for trajectory in trajectories:
            group.create_task(sender.send(trajectory, SOON_S))
    assert [item.summary.request for item in store.items] == [trajectory.request for trajectory in trajectories]


async def test_sends_that_wait_for_room_in_a_sender_take_up_no_memory() -> None:
    """Frames of several segments are a copy; otherwise memory grows with the episodes that wait for a slow buffer."""
    segments = tuple(make_segment(sampled=20_000) for _ in range(2))
    size = codec.payload_size(codec.encode_trajectory(make_trajectory(segments=segments)))
    async with receiver_for(Store()) as gone:
        pass
    async with sender_to(gone, budget_bytes=2 * size) as sender, asyncio.TaskGroup() as group:
        tracemalloc.start()
        try:
            sends = [group.create_task(sender.send(make_trajectory(g, segments=segments), SOON_S)) for g in range(40)]
            await until(lambda: sender.statistics().unacknowledged == 2)
            held, _ = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        for send in sends:
            send.cancel()
    assert 2 * size <= held <= 4 * size


async def test_a_send_that_is_cancelled_still_arrives_and_draining_waits_for_it() -> None:
    """A worker that is told to stop has finished episodes on their way: they are not run again for nothing."""
    store, outcomes = Store(), list[tuple[RolloutRequest, AppendOutcome]]()
    store.gate.clear()
    trajectory = make_trajectory(3, 1)
    async with (
        receiver_for(store) as receiver,
        sender_to(receiver, on_acknowledged=lambda *answer: outcomes.append(answer)) as sender,
        asyncio.TaskGroup() as group,
    ):
        send = group.create_task(sender.send(trajectory, SOON_S))
        await store.called.wait()
        send.cancel()
        assert await sender.drain(0.0) == ["train-g000003-s01"]
        draining = group.create_task(sender.drain(SOON_S))
        store.gate.set()
        assert await draining == []
    assert outcomes == [(trajectory.request, AppendOutcome.APPENDED)]
    assert len(store.items) == 1
    assert sender.unacknowledged == []

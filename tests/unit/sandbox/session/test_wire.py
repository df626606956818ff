"""If these fail, a frame that is cut into pieces is misread, or a program's output is taken for a frame."""

import contextlib
import dataclasses
import itertools
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandbox.docker.stream import StreamProtocolError
from sandbox.session.init_connection import init_messages, init_requests, wire
from sandbox.session.init_connection.init_messages import (
    ByeReason,
    ChildExit,
    ChildOutput,
    CommandStatus,
    DeathCause,
    FileData,
    FrameParser,
    InitAck,
    InitBye,
    InitHello,
    InitMessage,
    ProcessDied,
    SlotKind,
    SlotOutput,
    SlotState,
    StreamResumed,
)
from sandbox.session.init_connection.init_requests import Spool
from sandbox.session.init_connection.resend_buffer import ResendBuffer

ids = st.integers(0, 2**32 - 1)
codes = st.integers(-(2**31), 2**31 - 1)


slots = st.integers(0, wire.SLOTS - 1)


def encode(message: InitMessage) -> bytes:
    match message:
        case SlotOutput(slot, data):
            kind, payload = b"O", struct.pack("<H", slot) + data
        case ChildOutput(data):
            kind, payload = b"g", data
        case CommandStatus(slot, request, code, spooled, cwd):
            kind, payload = b"S", struct.pack("<HIiI", slot, request, code, spooled) + cwd.encode()
        case InitAck(request, error, value):
            kind, payload = b"A", struct.pack("<IiI", request, error, value)
        case ProcessDied(slot, request, code, spooled, why):
            kind, payload = b"X", struct.pack("<HIiIB", slot, request, code, spooled, why)
        case FileData(request, error, size, data):
            kind, payload = b"f", struct.pack("<IiQ", request, error, size) + data
        case SlotState(slot, of, running, request, code, cwd):
            kind, payload = b"V", struct.pack("<HBBIi", slot, of, running, request, code) + cwd.encode()
        case ChildExit(request, code, signalled):
            kind, payload = b"E", struct.pack("<IiB", request, code, signalled)
        case InitHello(protocol):
            kind, payload = b"H", bytes([protocol])
        case InitBye(why):
            kind, payload = b"B", bytes([why])
    return kind + struct.pack("<I", len(payload)) + payload


messages = st.one_of(
    st.builds(SlotOutput, slots, st.binary(max_size=300)),
    st.builds(ChildOutput, st.binary(max_size=300)),
    st.builds(CommandStatus, slots, ids, codes, ids, st.text(max_size=40)),
    st.builds(InitAck, ids, codes, ids),
    st.builds(ProcessDied, slots, ids, codes, ids, st.sampled_from(DeathCause)),
    st.builds(FileData, ids, codes, st.integers(0, 2**64 - 1), st.binary(max_size=300)),
    st.builds(
        SlotState,
        slots,
        st.sampled_from(SlotKind),
        st.booleans(),
        ids,
        codes,
        st.text(max_size=40),
    ),
    st.builds(ChildExit, ids, codes, st.booleans()),
    st.builds(InitHello, st.integers(0, 255)),
    st.builds(InitBye, st.sampled_from(ByeReason)),
)


@given(st.lists(messages, max_size=8), st.integers(1, 40))
def test_messages_arrive_whole_and_in_order_however_the_stream_is_cut(sent, step):
    stream, frames = b"".join(encode(each) for each in sent), FrameParser()
    assert [each for at in range(0, len(stream), step) for each in frames.feed(stream[at : at + step])] == sent


@given(
    st.lists(messages, max_size=4),
    messages,
    st.binary(min_size=16, max_size=16),
    st.integers(0, 60),
    st.integers(1, 40),
)
def test_a_new_client_sees_no_messages_of_the_previous_one(old, new, nonce, cut, step):
    """This holds whatever the old client's stream contained, and wherever the new one begins in it."""
    before = b"".join(encode(each) for each in old)[cut:]
    resumed = StreamResumed(wire.PROTOCOL, 7, 1 << 40)
    stream = (
        before + init_messages.sync_marker(nonce) + struct.pack("<BIQ", *dataclasses.astuple(resumed)) + encode(new)
    )
    parser = FrameParser(init_messages.sync_marker(nonce))
    got = [each for at in range(0, len(stream), step) for each in parser.feed(stream[at : at + step])]
    assert got == [resumed, new]
    assert parser.position == resumed.position + len(encode(new))


@given(st.lists(messages, min_size=1, max_size=8), st.integers(1, 40))
def test_each_message_has_the_position_after_it(sent, step):
    stream, parser = b"".join(encode(each) for each in sent), FrameParser()
    seen = [
        (each, parser.position) for at in range(0, len(stream), step) for each in parser.feed(stream[at : at + step])
    ]
    ends = itertools.accumulate(len(encode(each)) for each in sent)
    assert seen == list(zip(sent, ends, strict=True))


@given(st.lists(st.integers(1, 5), max_size=30), st.data())
def test_a_frame_is_kept_until_it_or_a_later_one_is_acknowledged(steps, data):
    numbers, box = list(itertools.accumulate(steps)), ResendBuffer()
    frames = {number: init_requests.interrupt_frame(number) for number in numbers}
    for frame in frames.values():
        box.add(frame)
    came = data.draw(st.integers(0, 160))
    box.acknowledge(came)
    assert list(box) == [frame for number, frame in frames.items() if number > came]


@given(st.binary(max_size=200))
def test_noise_ends_in_a_wire_error_or_in_waiting_never_in_another_exception(noise):
    with contextlib.suppress(StreamProtocolError):
        list(FrameParser().feed(noise))


@given(st.binary(max_size=64 << 10))
def test_output_that_imitates_frames_stays_output(data):
    forged = encode(CommandStatus(0, 1, 0, 0, "/")) + data
    assert list(FrameParser().feed(encode(SlotOutput(3, forged)))) == [SlotOutput(3, forged)]


@pytest.mark.parametrize(
    "make",
    [
        lambda: init_requests.run_frame(1, b"echo \0"),
        lambda: init_requests.run_frame(1, b"x" * (wire.MAX_COMMAND_BYTES + 1)),
        lambda: init_requests.write_frame(1, "relative", b""),
        lambda: init_requests.write_frame(1, "/a\0b", b""),
        lambda: init_requests.read_frame(1, "a", 0, 1),
        lambda: init_requests.private_folders_frame(1, {"tests": 0o700}),
        lambda: init_requests.child_frame(1, "/", ("sh", "a\0b"), {}),
        lambda: init_requests.child_frame(1, "/", (), {}),
        lambda: init_requests.terminal_frame(1, 1, cwd="/", argv=("x",) * 257, env={}, rows=1, columns=1),
        lambda: init_requests.type_frame(1, 1, b"x" * (wire.MAX_COMMAND_BYTES + 1)),
        lambda: Spool("relative", 1).encode(),
        lambda: Spool("/" + "x" * 600, 1).encode(),
    ],
)
def test_a_request_that_pid_1_could_not_accept_is_refused_before_sending(make):
    with pytest.raises(ValueError, match=r"\w"):
        make()

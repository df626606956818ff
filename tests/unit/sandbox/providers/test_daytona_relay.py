"""If these fail, a harness in a sandbox of Daytona's does not reach its policy, gets another answer than its own, or an
agent there stops its worker.

The relay's program runs here as a process; requests to Daytona are calls of a fake of its SDK."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.processes.loopback import find_free_port
from sandbox.errors import SandboxLost, SandboxStartError
from sandbox.providers.daytona import handle as handles
from sandbox.providers.daytona.handle import DaytonaHandle
from sandbox.providers.daytona.relay.build import build_relay
from sandbox.providers.daytona.relay.connections import ConnectionCarrier, carry_agent_connections
from sandbox.providers.daytona.relay.frames import (
    Frame,
    FrameKind,
    FrameReader,
    ReceivedStream,
    RelayProtocolError,
    RelayReply,
    SentStream,
    StreamPart,
)
from tests.support.fakes import fake_daytona
from tests.support.fakes.fake_daytona import AsyncSandbox, CreateSandboxFromImageParams, FakeSdk

frames = st.builds(Frame, st.sampled_from(FrameKind), st.integers(0, 2**32 - 1), st.binary(max_size=40))


@given(st.lists(frames), st.integers(1, 50))
def test_frames_are_read_however_their_stream_is_divided(sent: list[Frame], size: int) -> None:
    stream, reader = b"".join(frame.encode() for frame in sent), FrameReader()
    parts = [stream[at : at + size] for at in range(0, len(stream), size)]
    assert [frame for part in parts for frame in reader.feed(part)] == sent


@pytest.mark.parametrize(
    ("data", "why"), [(b"D\1\0\0\0\xff\xff\xff\xff", "a frame of 4294967295 bytes"), (b"?" + bytes(8), "of kind b'?'")]
)
def test_a_stream_that_makes_no_sense_is_refused(data: bytes, why: str) -> None:
    with pytest.raises(RelayProtocolError, match=why):
        FrameReader().feed(data)


@given(st.lists(st.tuples(st.binary(max_size=9), st.integers(1, 9), st.booleans(), st.booleans())))
def test_streams_lose_nothing_and_take_nothing_twice_when_requests_or_replies_are_lost(
    steps: list[tuple[bytes, int, bool, bool]],
) -> None:
    sent, received, whole, taken = SentStream(), ReceivedStream(), b"", b""
    for data, most, is_request_lost, is_reply_lost in [*steps, (b"", 1 << 20, False, False)]:
        sent.append(data)
        whole += data
        if is_request_lost:
            continue
        taken += received.take(sent.next_part(most))
        if not is_reply_lost:
            sent.acknowledge(received.position)
    assert (taken, sent.size) == (whole, 0)


def test_places_in_a_stream_that_cannot_be_are_refused() -> None:
    sent, received = SentStream(), ReceivedStream()
    sent.append(b"abc")
    sent.acknowledge(2)
    sent.acknowledge(1)  # an older reply
    assert sent.next_part(9) == StreamPart(2, b"c")
    with pytest.raises(RelayProtocolError, match="more than was sent"):
        sent.acknowledge(4)
    with pytest.raises(RelayProtocolError, match="left out"):
        received.take(StreamPart(1, b"x"))


@pytest.mark.parametrize("words", [(), ("1", "2", "3"), ("1", "2", "x", "="), ("1", "2", "3", "!!=="), ("1",) * 5])
def test_an_answer_that_is_none_is_refused(words: Sequence[str]) -> None:
    with pytest.raises(RelayProtocolError):
        RelayReply.parse(words)


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(scope="module")
def program(cache: Path) -> Path:
    return build_relay(cache)


class RelayMachine:
    """A fake sandbox's backend, which runs the relay's program in this machine."""

    def __init__(self, program: Path) -> None:
        self._program = program
        self.loses_replies = False
        """Whether each call runs and is not answered the first time."""
        self.speaks_nonsense = False
        self.calls = set[str]()
        self.names = set[str]()

    async def run(self, command: str, cwd: str) -> tuple[int, str]:
        words = command.split()
        if words[0] != "/.longshore/relay":
            return 0, "@sbx \n"
        self.names.add(words[2])
        process = await asyncio.create_subprocess_exec(self._program, *words[1:], stdout=asyncio.subprocess.PIPE)
        try:
            output, _ = await process.communicate()
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
        if self.loses_replies and command not in self.calls:
            self.calls.add(command)
            raise fake_daytona.DaytonaConnectionError("reset")
        if self.speaks_nonsense and words[1] == "exchange":
            return 0, "@sbx 1 2 3 !!\n"
        return process.returncode or 0, output.decode()

    async def write_files(self, files: dict[str, bytes]) -> None: ...

    async def read_file(self, path: str) -> bytes:
        return b""

    async def remove(self) -> None: ...

    def kill_daemons(self) -> None:
        """Kill the program as an agent could that is root."""
        for each in Path("/proc").glob("[0-9]*/cmdline"):
            words = each.read_bytes().decode(errors="replace").split("\0")
            if words[0] == str(self._program) and words[2] in self.names:
                os.kill(int(each.parent.name), signal.SIGKILL)


def make_handle(machine: RelayMachine) -> tuple[DaytonaHandle, AsyncSandbox]:
    async def backend(_: CreateSandboxFromImageParams) -> RelayMachine:
        return machine

    box = AsyncSandbox(fake_daytona.AsyncDaytona(), machine, CreateSandboxFromImageParams(image="x"))
    return DaytonaHandle(box, FakeSdk(backend)), box


async def greet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Greet a connection, echo its lines and tell its end."""
    writer.write(b"hello\n")
    while (line := await reader.readline()) and line != b"quit\n":
        writer.write(line)
        await writer.drain()
    writer.write(b"" if line else b"ended\n")
    writer.close()


@asynccontextmanager
async def carrying(handle: DaytonaHandle, cache: Path) -> AsyncGenerator[int]:
    """Carry the connections of a free port to a server here; yield the port."""
    port = find_free_port()
    async with asyncio.timeout(60), carry_agent_connections(handle, port, cache) as listener:
        server = await asyncio.start_unix_server(greet, sock=listener, limit=1 << 21)
        yield port
        server.close()


async def exchange(port: int, *lines: bytes) -> list[bytes]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1 << 21)
    heard = [await reader.readline()]
    for line in lines:
        writer.write(line)
        heard.append(await reader.readline())
    writer.write_eof()
    heard.append(await reader.read())
    writer.close()
    return heard


@pytest.mark.parametrize("loses_replies", [False, True])
async def test_connections_reach_this_process_though_requests_are_lost(
    program: Path, cache: Path, monkeypatch: pytest.MonkeyPatch, loses_replies: bool
) -> None:
    monkeypatch.setattr(handles, "AGAIN_S", 0.0)
    machine = RelayMachine(program)
    machine.loses_replies = loses_replies
    handle, _ = make_handle(machine)
    big = b"x" * 300_000 + b"\n"
    async with carrying(handle, cache) as port:
        async with asyncio.TaskGroup() as group:
            heard = [group.create_task(exchange(port, b"%d\n" % number, big)) for number in range(3)]
        assert [each.result() for each in heard] == [[b"hello\n", b"%d\n" % n, big, b"ended\n"] for n in range(3)]
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"quit\n")
        assert await reader.read() == b"hello\n", "what is closed here is not closed in the sandbox"
        writer.close()
        left, left_writer = await asyncio.open_connection("127.0.0.1", port)
        assert await left.readline() == b"hello\n"
    assert await left.read() == b"", "a connection outlives its program"
    left_writer.close()
    with pytest.raises(ConnectionError):
        await asyncio.open_connection("127.0.0.1", port)


async def test_a_relay_that_the_agent_kills_loses_its_connections_and_serves_the_next_ones(
    program: Path, cache: Path
) -> None:
    machine = RelayMachine(program)
    handle, _ = make_handle(machine)
    async with carrying(handle, cache) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        assert await reader.readline() == b"hello\n"
        machine.kill_daemons()
        with contextlib.suppress(ConnectionError):
            assert await reader.read() == b""
        writer.close()
        while True:
            try:
                heard = await exchange(port, b"again\n")
                break
            except ConnectionError:
                await asyncio.sleep(0.05)
        assert heard == [b"hello\n", b"again\n", b"ended\n"]


async def test_connections_end_when_what_carries_them_makes_no_sense(program: Path, cache: Path) -> None:
    """Else a harness waits for an answer until its own deadline."""
    machine = RelayMachine(program)
    handle, _ = make_handle(machine)
    async with carrying(handle, cache) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        assert await reader.readline() == b"hello\n"
        machine.speaks_nonsense = True
        writer.write(b"more\n")
        with contextlib.suppress(ConnectionError):
            while await reader.read(100):
                pass
        writer.close()
        with pytest.raises(ConnectionError):
            await asyncio.open_connection("127.0.0.1", port)


async def test_a_port_that_a_program_of_the_sandbox_has_is_named(program: Path, cache: Path) -> None:
    handle, _ = make_handle(RelayMachine(program))
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(SandboxStartError, match=f"listens on port {port}.*set agent.harness_port"):
            async with carry_agent_connections(handle, port, cache):
                raise AssertionError


async def test_a_sandbox_that_is_lost_meanwhile_is_lost_for_the_run_of_the_program(program: Path, cache: Path) -> None:
    machine = RelayMachine(program)
    handle, box = make_handle(machine)
    async with carrying(handle, cache) as port:
        box.deleted = True
        machine.kill_daemons()  # with its sandbox
        while handle.lost is None:  # noqa: ASYNC110  the handle has no event for it
            await asyncio.sleep(0.01)
        with pytest.raises(SandboxLost):
            await handle.call("list-processes")
        with pytest.raises(ConnectionError):
            await asyncio.open_connection("127.0.0.1", port)


@pytest.mark.parametrize(
    "stream",
    [
        b"?" + bytes(8),
        Frame(FrameKind.OPENED, 1).encode() * 2,
        Frame(FrameKind.DATA, 7, b"x").encode() + bytes(9),
    ],
    ids=["no frame", "opened twice", "nothing after data of no connection"],
)
async def test_a_program_that_sends_nonsense_is_no_longer_carried(
    stream: bytes, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def answer(
        incarnation: int, received: int, most_bytes: int, wait_s: float, part: StreamPart
    ) -> RelayReply | None:
        del received, most_bytes, wait_s
        return RelayReply(incarnation, part.offset + len(part.data), StreamPart(0, stream))

    async with asyncio.timeout(30):
        await ConnectionCarrier(answer, tmp_path / "nobody", 1).carry()
    assert "no longer carried" in caplog.text


async def test_connections_beyond_the_limit_are_closed(tmp_path: Path) -> None:
    opened = b"".join(Frame(FrameKind.OPENED, number).encode() for number in range(70))
    came, reader = list[Frame](), FrameReader()

    async def answer(
        incarnation: int, received: int, most_bytes: int, wait_s: float, part: StreamPart
    ) -> RelayReply | None:
        del wait_s
        came.extend(reader.feed(part.data))
        if most_bytes and received:
            await asyncio.Event().wait()
        return RelayReply(incarnation, part.offset + len(part.data), StreamPart(received, opened[received:]))

    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "here"))
        listener.listen(128)
        async with asyncio.timeout(30), asyncio.TaskGroup() as group:
            running = group.create_task(ConnectionCarrier(answer, tmp_path / "here", 1).carry())
            while len(came) < 6:  # noqa: ASYNC110  the carrier has no event for it
                await asyncio.sleep(0.01)
            running.cancel()
    assert came == [Frame(FrameKind.BROKEN, number) for number in range(64, 70)]

"""If these fail, what a container writes arrives cut, mixed up or not at all."""

from __future__ import annotations

import contextlib
import struct

from hypothesis import given
from hypothesis import strategies as st

from sandbox.docker.stream import DockerStreamDemultiplexer, StreamChunk, StreamProtocolError

chunks = st.builds(StreamChunk, st.booleans(), st.binary(max_size=300))


@given(st.lists(chunks, max_size=8), st.integers(1, 40))
def test_chunks_arrive_whole_and_in_order_however_the_stream_is_cut(sent: list[StreamChunk], step: int) -> None:
    stream = b"".join(struct.pack(">BxxxI", 1 + each.stderr, len(each.data)) + each.data for each in sent)
    demux = DockerStreamDemultiplexer()
    assert [each for at in range(0, len(stream), step) for each in demux.feed(stream[at : at + step])] == sent


@given(st.binary(max_size=200))
def test_noise_ends_in_a_protocol_error_or_in_waiting(noise: bytes) -> None:
    with contextlib.suppress(StreamProtocolError):
        list(DockerStreamDemultiplexer().feed(noise))

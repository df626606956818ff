"""If this fails, a stream of frames that no client sends reads or writes beyond PID 1's memory.

PID 1 is compiled with gcc's address and undefined-behaviour sanitizers, and takes streams of good, changed and torn
frames, each in a process of its own that is PID 1 of its PID namespace, within one container whose root is read-only.
"""

from __future__ import annotations

import random
import shutil
import struct
import subprocess
import zlib
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import pytest

import sandbox.init
from sandbox.host_record import SandboxHost
from sandbox.init.build import build_init
from sandbox.session.init_connection import init_requests as requests
from sandbox.session.init_connection.init_requests import FileFlag, ProcessUser, Spool
from sandbox.session.init_connection.wire import FRAME_CHECKSUM, FRAME_HEADER, MAIN_SLOT

pytestmark = [pytest.mark.docker, pytest.mark.slow]
KEY = b"K" + b"k" * 31
KINDS = b"RPTZICWFKXGMUQDNY"
PATHS = ("/tmp/a", "/tmp/b/", "/tmp/a/b/c", "/proc/self/mem", "/tmp/" + "p" * 300, "/.." * 9 + "/tmp/x", "/usr")
COMMANDS = (b"true", b"cd /tmp; echo hi", b"exit 3", b"(sleep 9 &)", b"printf %070000d 1", b"\xff\xfe", b"")
NUMBERS = (0, 1, 2, 0x7F, 0xFF, 0x7FFF, 0xFFFF, 0x7FFFFFFF, 0xFFFFFFFF)
SANITIZED = (
    "-g",
    "-O1",
    "-fsanitize=address,undefined",
    "-fno-sanitize-recover=all",
    "-static-libasan",
    "-static-libubsan",
)
PLAY = """
export ASAN_OPTIONS=detect_leaks=0
play() {
    if (( 10#${1##*/} % 4 )); then cat "$1"; else head -c 300 "$1"; sleep 0.03; tail -c +301 "$1"; fi
}
for stream in /streams/*; do
    [ -c /dev/null ] || { rm -rf /dev/null; mknod -m 666 /dev/null c 1 3; }
    play "$stream" 2>&- |
        unshare --pid --fork --kill-child --mount-proc /init 1500 1500 /tmp "$KEY" 2>/run/report >/dev/null
    code=${PIPESTATUS[1]}
    [ "$code" = 0 ] || { echo "stream $stream: exit code $code"; head -c 3000 /run/report; }
done
echo all played
"""


def good_frame(draw: random.Random, request: int) -> bytes:
    """One frame as a client sends it."""
    slot = draw.choice((MAIN_SLOT, 1, 2, 31))
    path, command = draw.choice(PATHS), draw.choice(COMMANDS)
    spool = draw.choice((None, Spool("/tmp/spool", draw.choice((0, 10, 1 << 16)))))
    user = draw.choice((ProcessUser(), ProcessUser(1000, 1000, tuple(range(draw.randrange(64))))))
    argv, env = draw.choice((["true"], ["sh", "-c", "echo $A; exit 4"], ["/none"])), {"A": "b" * draw.randrange(90)}
    flags = FileFlag(draw.randrange(16))
    frames: Sequence[Callable[[], bytes]] = (
        lambda: requests.run_frame(request, command, slot, spool),
        lambda: requests.terminal_frame(
            request, slot, cwd="/tmp", argv=argv, env=env, rows=24, columns=80, spool=spool
        ),
        lambda: requests.type_frame(request, slot, command * draw.randrange(1, 200)),
        lambda: requests.resize_frame(request, slot, draw.randrange(1, 500), draw.randrange(1, 500)),
        lambda: requests.interrupt_frame(request, slot),
        lambda: requests.close_frame(request, slot),
        lambda: requests.write_frame(request, path, draw.randbytes(draw.randrange(600)), flags=flags),
        lambda: requests.read_frame(request, path, draw.choice(NUMBERS), draw.choice(NUMBERS), flags),
        lambda: requests.extend_frame(request, 1500),
        lambda: requests.kill_all_frame(request),
        lambda: requests.kill_tests_frame(request),
        lambda: requests.child_frame(request, "/tmp", argv, env, user),
        lambda: requests.agent_user_frame(request, user, draw.choice(("", path))),
        lambda: requests.private_folders_frame(request, dict.fromkeys(draw.sample(PATHS[:4], 2), 0o700)),
        lambda: requests.sync_frame(request, draw.randbytes(16), draw.choice((0, 1, 500, (1 << 64) - 1))),
        lambda: requests.stream_ack_frame(draw.choice((0, 1, 64, 1 << 40))),
    )
    return draw.choice(frames)()


def changed(draw: random.Random, frame: bytes) -> bytes:
    """The frame with another kind or body, and the checksum of that."""
    kind, body = frame[:1], bytearray(frame[FRAME_HEADER.size + FRAME_CHECKSUM.size :])
    for _ in range(draw.randrange(1, 4)):
        at = draw.randrange(len(body) + 1)
        match draw.randrange(5):
            case 0:
                body[at : at + 1] = draw.randbytes(1)
            case 1:
                del body[at:]
            case 2:
                width = draw.choice((2, 4, 8))
                body[at : at + width] = draw.choice(NUMBERS).to_bytes(8, "little")[:width]
            case 3:
                body[at:at] = draw.randbytes(draw.randrange(64))
            case _:
                kind = bytes([draw.choice(KINDS)])
    return encode_frame(kind, bytes(body))


def encode_frame(kind: bytes, body: bytes) -> bytes:
    head = FRAME_HEADER.pack(kind, len(body))
    return head + FRAME_CHECKSUM.pack(zlib.crc32(body, zlib.crc32(head))) + body


def make_stream(seed: int) -> bytes:
    draw = random.Random(seed)
    stream = bytearray(KEY if draw.random() < 0.7 else b"")
    for request in range(1, draw.randrange(2, 30)):
        frame = good_frame(draw, request)
        frame = changed(draw, frame) if draw.random() < 0.08 else frame
        match draw.randrange(60):
            case 0:
                stream += frame[: draw.randrange(len(frame))] + KEY
            case 1:
                stream += draw.randbytes(draw.randrange(300)) + KEY
            case _:
                stream += frame
    return bytes(stream) + requests.quit_frame(1 << 30)


def play_streams(host: SandboxHost, folder: Path, streams: Iterable[bytes], without: str = "") -> str:
    """Return what the container printed: the streams whose process ended otherwise than by a frame or its deadline.

    ``without``: a check of files.c that is left out.
    """
    (folder / "streams").mkdir()
    for number, stream in enumerate(streams):
        (folder / "streams" / f"{number:06d}").write_bytes(stream)
    sources = shutil.copytree(Path(sandbox.init.__file__).parent, folder / "init")
    files, text = sources / "files.c", (sources / "files.c").read_text()
    assert without in text
    files.write_text(text.replace(without, ""))
    program = folder / "sanitized"
    subprocess.run(("gcc", *SANITIZED, "-o", str(program), *map(str, sorted(sources.glob("*.c")))), check=True)
    agent_input = build_init(folder).agent_input
    mounts = {folder / "streams": "/streams", program: "/init", agent_input: "/.sbx/agent_input.so"}
    command = [
        *("docker", "--host", host.docker_url, "run", "--rm", "--network=none", "--read-only", "--memory=1g"),
        *("--tmpfs=/tmp", "--tmpfs=/run", "--cap-add=SYS_ADMIN", "--security-opt=apparmor=unconfined"),
        *("--security-opt=seccomp=unconfined", "--env", f"KEY={KEY.decode()}"),
        *(f"--volume={source}:{target}:ro" for source, target in mounts.items()),
        *("--entrypoint=bash", host.base_image, "-c", PLAY),
    ]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def test_no_stream_of_frames_leads_pid_1_beyond_its_memory(docker_engine: SandboxHost, tmp_path: Path):
    assert play_streams(docker_engine, tmp_path, map(make_stream, range(600))) == "all played\n"


def test_a_check_that_is_missing_is_found(docker_engine: SandboxHost, tmp_path: Path):
    stream = encode_frame(b"W", struct.pack("<IIBH", 1, 0o644, 0, 5000) + b"/" * 5000)
    said = play_streams(docker_engine, tmp_path, [stream], without="length > PATH_MOST || ")
    assert "stream /streams/000000: exit code" in said
    assert "buffer-overflow" in said

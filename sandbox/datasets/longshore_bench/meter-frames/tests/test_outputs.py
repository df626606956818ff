"""decode.py is run on recordings that are made here."""

import struct
import zlib
from pathlib import Path

import nobody


def varint(number, least=1):
    out = []
    while number > 127 or len(out) < least - 1:
        out.append(number & 127 | 128)
        number >>= 7
    return bytes([*out, number])


def frame(kind, body, least=1):
    inner = bytes([kind]) + varint(len(body), least) + body
    return b"\xa5\x5a" + inner + struct.pack(">I", zlib.crc32(inner))


def zigzag(number):
    return varint(2 * number if number >= 0 else -2 * number - 1)


def batch(station, seconds, step, changes, count=None):
    head = struct.pack("<HIHB", station, seconds, step, len(changes) if count is None else count)
    return frame(3, head + b"".join(map(zigzag, changes)))


def reading(station, seconds, value):
    return frame(1, struct.pack("<HIi", station, seconds, value))


def decoded(data):
    made = nobody.folder({"r.bin": data})
    done = nobody.run("python3", "/app/decode.py", made / "r.bin", env={"TZ": "Asia/Tokyo"})
    lines = done.stdout.split("\n")
    assert lines.pop() == ""
    assert done.returncode == int(any(line.startswith("!") for line in lines)), done.stderr
    return lines


def test_sample():
    data = Path("/app/sample.bin").read_bytes()
    lines = decoded(data)
    assert lines[:3] == ["N 7 Südkai\\x09\\x5c", "R 7 2024-02-29T23:59:59Z -0.050", "! skipped 4 at 37"]
    assert lines[3:] == [
        *(
            "R 300 2023-11-14T22:13:20Z -1.500",
            "R 300 2023-11-14T22:28:20Z -1.480",
            "R 300 2023-11-14T22:43:20Z -1.480",
        ),
        *("N 8 Nordmole", "? 09 200", "! bad payload 01", "! skipped 18 at 312"),
        *("R 65535 2106-02-07T06:28:15Z 2147483.647", "! skipped 17 at 348"),
    ]


def test_readings():
    made = reading(258, 1, -1) + reading(0, 951782400, 1005) + reading(1, 3000000000, -(1 << 31))
    assert decoded(made) == [
        *("R 258 1970-01-01T00:00:01Z -0.001", "R 0 2000-02-29T00:00:00Z 1.005"),
        "R 1 2065-01-24T05:20:00Z -2147483.648",
    ]


def name(raw, station=515):
    return frame(2, struct.pack("<H", station) + raw)


def test_names():
    made = (
        name("Köln \U0001f6a2\x7f\x01\\n".encode())
        + name(b"")
        + name(b"\xff\xfe" + "Å\n\U0001f6a2".encode("utf-16-le"))
    )
    made += name("\ufeffx".encode())
    assert decoded(made) == ["N 515 Köln 🚢\\x7f\\x01\\x5cn", "N 515 ", "N 515 Å\\x0a🚢", "N 515 \ufeffx"]


def test_batches():
    made = (
        batch(1, 0xFFFFFFFF, 65535, [2**31 - 1, -(2**31) + 1, -5]) + batch(2, 0, 0, []) + batch(3, 60, 60, [-1] * 255)
    )
    lines = decoded(made)
    assert lines[0] == "R 1 2106-02-07T06:28:15Z 2147483.647"
    assert lines[1].endswith(" 0.000")
    assert lines[2].endswith(" -0.005")
    assert len(lines) == 258
    assert lines[3] == "R 3 1970-01-01T00:01:00Z -0.001"
    assert lines[-1] == "R 3 1970-01-01T04:15:00Z -0.255"


def test_lengths_and_other_kinds():
    made = (
        frame(0xA5, b"", 1)
        + frame(0x10, b"x" * 127)
        + frame(0xFF, b"y" * 128)
        + frame(4, bytes(4096))
        + frame(5, b"z", 3)
    )
    assert decoded(made) == ["? a5 0", "? 10 127", "? ff 128", "? 04 4096", "? 05 1"]
    too_long = frame(4, bytes(4097))
    assert decoded(too_long) == [f"! skipped {len(too_long)} at 0"]
    four = frame(5, b"z", 4)
    assert decoded(four) == [f"! skipped {len(four)} at 0"]
    assert decoded(b"") == []


def test_bad_payloads():
    made = [
        frame(1, bytes(9)),
        frame(1, bytes(11)),
        name(b"\xc3"),
        name(b"\xff\xfe\x41"),
        name(b"\xff\xfe\x00\xd8"),
        frame(2, b"\0"),
        batch(1, 0, 1, [1, 2], count=3),
        batch(1, 0, 1, [1, 2], count=1),
        batch(1, 0, 1, [2**31 - 1, 1]),
        frame(3, bytes(8)),
        frame(3, bytes(8) + b"\1" + b"\x80" * 5 + b"\0"),
    ]
    kinds = ["01"] * 2 + ["02"] * 4 + ["03"] * 5
    assert decoded(b"".join(made)) == [f"! bad payload {kind}" for kind in kinds]


def test_damage():
    inner = reading(1, 0, 1)
    outer = frame(9, b"ab" + inner + b"cd")
    broken = outer[:-1] + bytes([outer[-1] ^ 1])
    assert decoded(outer) == [f"? 09 {len(inner) + 4}"]
    line = "R 1 1970-01-01T00:00:00Z 0.001"
    assert decoded(broken) == ["! skipped 6 at 0", line, f"! skipped 6 at {6 + len(inner)}"]
    assert decoded(b"\xa5" + inner + b"\xa5\x5a\x01\xff\xff") == [
        "! skipped 1 at 0",
        line,
        f"! skipped 5 at {1 + len(inner)}",
    ]
    assert decoded(inner[:-1] + inner) == [f"! skipped {len(inner) - 1} at 0", line]
    assert decoded(inner + b"\0" + inner + b"\xa5") == [
        line,
        f"! skipped 1 at {len(inner)}",
        line,
        f"! skipped 1 at {2 * len(inner) + 1}",
    ]

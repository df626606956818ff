cat > /app/decode.py <<'EOF'
"""decode.py FILE: see FORMAT.md"""

import struct
import sys
import time
import zlib


class Bad(Exception):
    pass


def varint(data, at, most):
    value = 0
    for count in range(most):
        if at + count >= len(data):
            raise Bad
        byte = data[at + count]
        value |= (byte & 127) << 7 * count
        if byte < 128:
            return value, at + count + 1
    raise Bad


def reading(station, seconds, value):
    stamp = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(seconds))
    sign = "-" if value < 0 else ""
    return "R %d %s %s%d.%03d" % (station, stamp, sign, abs(value) // 1000, abs(value) % 1000)


def name(raw):
    try:
        text = raw[2:].decode("utf-16-le") if raw[:2] == b"\xff\xfe" else raw.decode("utf-8")
    except UnicodeDecodeError:
        raise Bad from None
    return "".join("\\x%02x" % ord(each) if ord(each) < 32 or each in "\x7f\\" else each for each in text)


def batch(body):
    if len(body) < 9:
        raise Bad
    station, seconds, step, count = struct.unpack("<HIHB", body[:9])
    at, value, lines = 9, 0, []
    for _ in range(count):
        change, at = varint(body, at, 5)
        value += change >> 1 if change % 2 == 0 else -(change + 1 >> 1)
        if not -(1 << 31) <= value < 1 << 31:
            raise Bad
        lines.append(reading(station, seconds, value))
        seconds += step
    if at != len(body):
        raise Bad
    return lines


def payload(kind, body):
    try:
        if kind == 1:
            if len(body) != 10:
                raise Bad
            return [reading(*struct.unpack("<HIi", body))]
        if kind == 2:
            if len(body) < 2:
                raise Bad
            return ["N %d %s" % (struct.unpack("<H", body[:2])[0], name(body[2:]))]
        if kind == 3:
            return batch(body)
    except Bad:
        return ["! bad payload %02x" % kind]
    return ["? %02x %d" % (kind, len(body))]


def frame(data, at):
    """Kind, payload and the end of the frame that begins there."""
    if data[at:at + 2] != b"\xa5\x5a":
        raise Bad
    length, begin = varint(data, at + 3, 3)
    end = begin + length + 4
    if length > 4096 or end > len(data):
        raise Bad
    if zlib.crc32(data[at + 2:end - 4]) != struct.unpack(">I", data[end - 4:end])[0]:
        raise Bad
    return data[at + 2], data[begin:end - 4], end


def main(path):
    with open(path, "rb") as file:
        data = file.read()
    lines, at, skipped = [], 0, None
    while at < len(data):
        try:
            kind, body, end = frame(data, at)
        except Bad:
            skipped = at if skipped is None else skipped
            at += 1
            continue
        if skipped is not None:
            lines.append("! skipped %d at %d" % (at - skipped, skipped))
            skipped = None
        lines += payload(kind, body)
        at = end
    if skipped is not None:
        lines.append("! skipped %d at %d" % (at - skipped, skipped))
    sys.stdout.buffer.write("".join(line + "\n" for line in lines).encode())
    return int(any(line.startswith("!") for line in lines))


sys.exit(main(sys.argv[1]))
EOF

# Looks again byte by byte and tells what it skips, but knows no bad payload, no UTF-16 and no escapes.
cat > /app/decode.py <<'EOF'
import struct, sys, time, zlib
data = open(sys.argv[1], "rb").read()
def varint(d, at):
    value = shift = 0
    while True:
        value |= (d[at] & 127) << shift; shift += 7; at += 1
        if d[at - 1] < 128: return value, at
def r(station, seconds, value):
    return "R %d %s %.3f" % (station, time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(seconds)), value / 1000)
def payload(kind, body):
    if kind == 1: return [r(*struct.unpack("<HIi", body))]
    if kind == 2: return ["N %d %s" % (struct.unpack("<H", body[:2])[0], body[2:].decode(errors="replace"))]
    if kind == 3:
        station, seconds, step, count = struct.unpack("<HIHB", body[:9]); at, value, out = 9, 0, []
        for n in range(count):
            c, at = varint(body, at); value += c >> 1 if c % 2 == 0 else -(c + 1 >> 1); out.append(r(station, seconds + n * step, value))
        return out
    return ["? %02x %d" % (kind, len(body))]
at, skipped, lines = 0, None, []
while at < len(data):
    try:
        assert data[at:at + 2] == b"\xa5\x5a"
        length, begin = varint(data, at + 3); end = begin + length + 4
        assert end <= len(data) and zlib.crc32(data[at + 2:end - 4]) == struct.unpack(">I", data[end - 4:end])[0]
    except (AssertionError, IndexError):
        skipped = at if skipped is None else skipped; at += 1; continue
    if skipped is not None: lines.append("! skipped %d at %d" % (at - skipped, skipped)); skipped = None
    try: lines += payload(data[at + 2], data[begin:end - 4])
    except Exception: pass
    at = end
if skipped is not None: lines.append("! skipped %d at %d" % (at - skipped, skipped))
for line in lines: print(line)
sys.exit(any(line[0] == "!" for line in lines))
EOF

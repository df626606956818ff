set -e
cat > /tmp/make.py <<'EOF'
import struct
import zlib


def varint(number):
    out = b""
    while number > 127:
        out += bytes([number & 127 | 128])
        number >>= 7
    return out + bytes([number])


def frame(kind, body):
    inner = bytes([kind]) + varint(len(body)) + body
    return b"\xa5\x5a" + inner + struct.pack(">I", zlib.crc32(inner))


def zigzag(number):
    return varint(2 * number if number >= 0 else -2 * number - 1)


out = frame(2, struct.pack("<H", 7) + "Südkai\t\\".encode())
out += frame(1, struct.pack("<HIi", 7, 1709251199, -50))
out += b"\0\xa5\x5a\x01"
out += frame(3, struct.pack("<HIHB", 300, 1700000000, 900, 3) + zigzag(-1500) + zigzag(20) + zigzag(0))
out += frame(2, struct.pack("<H", 8) + b"\xff\xfe" + "Nordmole".encode("utf-16-le"))
out += frame(9, bytes(200))
out += frame(1, b"short")
damaged = bytearray(frame(1, struct.pack("<HIi", 1, 1, 1)))
damaged[5] ^= 1
out += bytes(damaged) + frame(1, struct.pack("<HIi", 65535, 4294967295, 2147483647))
out += frame(1, struct.pack("<HIi", 1, 0, 0))[:-1]
open("/app/sample.bin", "wb").write(out)
EOF
python3 /tmp/make.py
rm /tmp/make.py
cat > /app/sample.txt <<'EOF'
N 7 Südkai\x09\x5c
R 7 2024-02-29T23:59:59Z -0.050
! skipped 4 at 37
R 300 2023-11-14T22:13:20Z -1.500
R 300 2023-11-14T22:28:20Z -1.480
R 300 2023-11-14T22:43:20Z -1.480
N 8 Nordmole
? 09 200
! bad payload 01
! skipped 18 at 312
R 65535 2106-02-07T06:28:15Z 2147483.647
! skipped 17 at 348
EOF

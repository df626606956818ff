"""decode.py FILE: see FORMAT.md"""

import struct
import sys
import time
import zlib


def varint(data, at):
    value = 0
    while True:
        byte = data[at]
        at += 1
        value = value << 7 | byte & 127
        if byte < 128:
            return value, at


def stamp(seconds):
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.localtime(seconds))


def payload(kind, body):
    if kind == 1:
        station, seconds, value = struct.unpack("<HII", body)
        print("R", station, stamp(seconds), value / 1000)
    elif kind == 2:
        station, = struct.unpack(">H", body[:2])
        print("N", station, body[2:].decode(errors="replace"))
    elif kind == 3:
        station, seconds, step, count = struct.unpack("<HIHB", body[:9])
        at = 9
        value = 0
        for _ in range(count):
            change, at = varint(body, at)
            value = change >> 1
            print("R", station, stamp(seconds), "%.3f" % (value / 1000))
            seconds += step
    else:
        print("?", kind, len(body))


data = open(sys.argv[1], "rb").read()
at = 0
while at < len(data):
    if data[at:at + 2] != b"\xa5\x5a":
        at += 1
        continue
    length, begin = varint(data, at + 3)
    body = data[begin:begin + length]
    check, = struct.unpack("<I", data[begin + length:begin + length + 4])
    if zlib.crc32(data[at + 2:begin + length]) == check:
        payload(data[at + 2], body)
    at = begin + length + 4

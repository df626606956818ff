cat > /app/resample.py <<'EOF'
import re
import sys
from datetime import datetime, timezone

QUARTER, LONGEST = 900, 3600
TIME = r"([0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2})(Z|[-+][0-9]{2}:[0-9]{2})"
LINE = re.compile(TIME + r",([^,]*),(-?[0-9]+(?:\.[0-9]{1,3})?|)")


def seconds(stamp, offset):
    at = datetime.strptime(stamp + offset.replace("Z", "+00:00"), "%Y-%m-%dT%H:%M:%S%z")
    return int((at - datetime(1970, 1, 1, tzinfo=timezone.utc)).total_seconds())


def thousandths(text):
    whole, _, part = text.lstrip("-").partition(".")
    return (-1 if text.startswith("-") else 1) * (int(whole) * 1000 + int((part + "000")[:3]))


def shown(value):
    return "%s%d.%03d" % ("-" if value < 0 else "", abs(value) // 1000, abs(value) % 1000)


def mean(weighted, total):
    rounded = (2 * abs(weighted) + total) // (2 * total)
    return shown(-rounded if weighted < 0 else rounded)


def main(path, begin, end):
    begin, end = (seconds(*re.fullmatch(TIME, each).groups()) for each in (begin, end))
    stations = {}
    with open(path, encoding="utf-8", errors="surrogateescape", newline="\n") as file:
        for line in file:
            found = LINE.fullmatch(line.rstrip("\n").rstrip("\r"))
            if found:
                try:
                    at = seconds(found[1], found[2])
                except ValueError:
                    continue
                stations.setdefault(found[3], {})[at] = found[4]
    out = []
    for name in sorted(stations, key=lambda each: each.encode(errors="surrogateescape")):
        readings = sorted(stations[name].items())
        if not any(value for _, value in readings):
            continue
        buckets = {}
        for number, (at, value) in enumerate(readings):
            until = min(at + LONGEST, end)
            if number + 1 < len(readings):
                until = min(until, readings[number + 1][0])
            at = max(at, begin)
            while value and at < until:
                quarter = at - at % QUARTER
                upto = min(until, quarter + QUARTER)
                buckets.setdefault(quarter, []).append((upto - at, thousandths(value)))
                at = upto
        for quarter in range(begin, end, QUARTER):
            stamp = datetime.fromtimestamp(quarter, timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
            parts = buckets.get(quarter, [])
            total = sum(length for length, _ in parts)
            if parts:
                values = [value for _, value in parts]
                average = mean(sum(length * value for length, value in parts), total)
                out.append("%s,%s,%d,%s,%s,%s" % (name, stamp, total, average, shown(min(values)), shown(max(values))))
            else:
                out.append("%s,%s,0,,," % (name, stamp))
    sys.stdout.buffer.write("".join(line + "\n" for line in out).encode(errors="surrogateescape"))


main(*sys.argv[1:4])
EOF

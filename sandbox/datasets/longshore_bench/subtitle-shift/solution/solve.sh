cat > /app/srt.py <<'EOF'
import re
import sys

TIME = r"([0-9]{1,3}):([0-9]{1,2}):([0-9]{1,2})(?:[,.]([0-9]{1,3}))?"
TIMES = re.compile(r"[ \t]*%s[ \t]+-->[ \t]+%s(?:[ \t]+(.*?))?[ \t]*" % (TIME, TIME))


class Wrong(Exception):
    pass


def arguments(words):
    chosen = {"--shift": 0, "--stretch": (1, 1), "--from": None}
    words = list(words)
    forms = {"--shift": "-?[0-9]+", "--stretch": "0*[1-9][0-9]*/0*[1-9][0-9]*", "--from": "[0-9]+"}
    while words:
        name = words.pop(0)
        if name not in forms or not words or not re.fullmatch(forms[name], words[0]):
            sys.exit(2)
        value = words.pop(0)
        chosen[name] = tuple(map(int, value.split("/"))) if name == "--stretch" else int(value)
    return chosen


def thousandths(parts):
    hours, minutes, seconds, rest = (int(each or 0) for each in parts)
    if minutes > 59 or seconds > 59:
        return None
    return ((hours * 60 + minutes) * 60 + seconds) * 1000 + rest


def shown(value):
    seconds, rest = divmod(value, 1000)
    return "%02d:%02d:%02d,%03d" % (seconds // 3600, seconds // 60 % 60, seconds % 60, rest)


def read(text):
    lines = text.removeprefix("\ufeff").split("\n")
    lines = [line.removesuffix("\r") for line in lines]
    if lines[-1] == "":
        lines.pop()
    found, at = [], 0
    while at < len(lines):
        if not lines[at].strip(" \t"):
            at += 1
            continue
        number = re.fullmatch("[ \t]*([0-9]+)[ \t]*", lines[at])
        if not number:
            raise Wrong("line %d: no number" % (at + 1))
        times = TIMES.fullmatch(lines[at + 1]) if at + 1 < len(lines) else None
        begin, end = (thousandths(times.group(*each)) for each in ((1, 2, 3, 4), (5, 6, 7, 8))) if times else (None, None)
        if begin is None or end is None:
            raise Wrong("line %d: no times" % (at + 2))
        at += 2
        text = []
        while at < len(lines) and lines[at].strip(" \t"):
            text.append(lines[at])
            at += 1
        found.append([int(number[1]), begin, end, times[9] or "", text])
    return found


def main():
    chosen = arguments(sys.argv[1:])
    try:
        titles = read(sys.stdin.buffer.read().decode("utf-8", "surrogateescape"))
    except Wrong as error:
        print(error, file=sys.stderr)
        return 1
    a, b = chosen["--stretch"]
    on = chosen["--from"] is None
    for title in titles:
        on = on or title[0] == chosen["--from"]
        if on:
            title[1:3] = ((2 * each * a + b) // (2 * b) + chosen["--shift"] for each in title[1:3])
    titles = [title for title in titles if title[2] > 0]
    for title in titles:
        title[1] = max(title[1], 0)
        title[2] = max(title[2], title[1])
    titles.sort(key=lambda title: title[1])
    for title, following in zip(titles, titles[1:]):
        if title[2] > following[1]:
            title[2] = max(title[1], following[1] - 1)
    out = []
    for number, (_, begin, end, more, text) in enumerate(titles, 1):
        times = "%s --> %s" % (shown(begin), shown(end)) + (" " + more if more else "")
        out += [str(number), times, *text, ""]
    sys.stdout.buffer.write("".join(line + "\n" for line in out).encode("utf-8", "surrogateescape"))
    return 0


sys.exit(main())
EOF

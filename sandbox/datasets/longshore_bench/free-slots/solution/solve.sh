cat > /tmp/fix.py <<'EOF'
text = open("/app/slots.py").read()


def sub(old, new):
    global text
    assert text.count(old) == 1, old
    text = text.replace(old, new)


sub("import sys\n", "import re\nimport sys\n")
sub('''    hours, minutes = text.split(":")
    value = int(hours) * 60 + int(minutes)
    if value > 1440:
''', '''    found = re.fullmatch("([0-9]{1,2}):([0-5][0-9])", text.strip())
    if not found:
        raise ValueError(text)
    value = int(found[1]) * 60 + int(found[2])
    if value > 1440:
''')
sub('"%d:%02d" % (minutes / 60,', '"%02d:%02d" % (minutes // 60,')
sub('''    for line in lines:
        if not line or line.startswith("#"):
            continue
        begin, end = [parse_time(part) for part in line.split()[0].split("-")]
        if end < begin:
            spans.append((begin, 1440))
            spans.append((0, end))
''', '''    for number, line in enumerate(lines, 1):
        if not line.strip() or line.startswith("#"):
            continue
        try:
            begin, end = [parse_time(part) for part in line.split()[0].split("-")]
        except ValueError as error:
            raise ValueError("line %d: %s" % (number, error)) from error
        if end <= begin:
            if begin < 1440:
                spans.append((begin, 1440))
            if end > 0:
                spans.append((0, end))
''')
sub("def merge(spans, merged=[]):", "def merge(spans):")
sub('''    spans.sort()
    for begin, end in spans:
        if merged and begin < merged[-1][1]:
            merged[-1] = (merged[-1][0], end)
''', '''    merged = []
    for begin, end in sorted(spans):
        if merged and begin <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
''')
sub('''        if begin - at > least:
            found.append((at, begin))
        at = end
    if day[1] - at > least:
''', '''        begin = min(begin, day[1])
        if begin - at >= max(least, 1):
            found.append((at, begin))
        at = max(at, end)
    if day[1] - at >= max(least, 1):
''')
sub('''    while arguments:
''', '''    try:
        return _main(list(arguments), day, least)
    except (ValueError, IndexError) as error:
        print("slots.py: %s" % error, file=sys.stderr)
        return 2


def _main(arguments, day, least):
    while arguments:
''')
sub('''            least = int(arguments.pop(0))
    for begin, end in free(parse_bookings(sys.stdin), day, least):
        print("%s-%s %d" % (format_time(begin), format_time(end), end - begin))
    return 0
''', '''            least = int(arguments.pop(0))
        else:
            raise ValueError("unknown argument " + name)
    if len(day) != 2 or day[0] >= day[1]:
        raise ValueError("the day is no span")
    found = free(parse_bookings(sys.stdin), day, least)
    for begin, end in found:
        print("%s-%s %d" % (format_time(begin), format_time(end), end - begin))
    return 0 if found else 1
''')
open("/app/slots.py", "w").write(text)
EOF
python3 /tmp/fix.py

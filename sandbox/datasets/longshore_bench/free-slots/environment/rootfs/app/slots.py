"""Free time between bookings.

A time of day is a whole number of minutes from 0 to 1440; a span is a pair (begin, end) with begin < end, and does not
contain its end: (540, 600) and (600, 660) touch and do not overlap.
"""

import sys


def parse_time(text):
    """'9:05', '09:05' and '24:00' → minutes.  Minutes have two digits, hours one or two.  Blanks around it do not count.

    Raises ValueError for everything else, such as '9:5', '24:01', '7:60', '-1:00', '12', '1:2:3' and '+9:00'.
    """
    hours, minutes = text.split(":")
    value = int(hours) * 60 + int(minutes)
    if value > 1440:
        raise ValueError(text)
    return value


def format_time(minutes):
    """545 → '09:05', 1440 → '24:00'."""
    return "%d:%02d" % (minutes / 60, minutes % 60)


def parse_bookings(lines):
    """Lines 'BEGIN-END what it is' → list of spans, in order of the lines.

    Empty lines and those that begin with '#' are passed over.  A booking whose end is not after its begin goes over
    midnight: '23:00-01:30' is the spans (1380, 1440) and (0, 90), in this order; '22:00-00:00' is (1320, 1440) alone,
    and '00:00-00:00' is (0, 1440).
    Raises ValueError with the number of the line, from 1, in its message: 'line 3: …'.
    """
    spans = []
    for line in lines:
        if not line or line.startswith("#"):
            continue
        begin, end = [parse_time(part) for part in line.split()[0].split("-")]
        if end < begin:
            spans.append((begin, 1440))
            spans.append((0, end))
        else:
            spans.append((begin, end))
    return spans


def merge(spans, merged=[]):
    """Spans in any order → the fewest spans that cover the same time, in order.  What touches is one span.

    ``spans`` is not changed.
    """
    spans.sort()
    for begin, end in spans:
        if merged and begin < merged[-1][1]:
            merged[-1] = (merged[-1][0], end)
        else:
            merged.append((begin, end))
    return merged


def free(spans, day=(480, 1080), least=1):
    """The spans of ``day`` that no booking covers, in order, if they have at least ``least`` minutes."""
    found = []
    at = day[0]
    for begin, end in merge(spans):
        if begin - at > least:
            found.append((at, begin))
        at = end
    if day[1] - at > least:
        found.append((at, day[1]))
    return found


def main(arguments):
    """slots.py [--day BEGIN-END] [--least MINUTES] < BOOKINGS: print the free spans, 'BEGIN-END MINUTES' a line.

    Exit code 0, or 1 if there are none (and nothing is printed), or 2 with the message on standard error if an argument
    or a line is wrong.  A day has to be one span: '18:00-08:00' and '08:00-08:00' are wrong arguments.
    """
    day, least = (480, 1080), 1
    while arguments:
        name = arguments.pop(0)
        if name == "--day":
            day = tuple(parse_time(part) for part in arguments.pop(0).split("-"))
        elif name == "--least":
            least = int(arguments.pop(0))
    for begin, end in free(parse_bookings(sys.stdin), day, least):
        print("%s-%s %d" % (format_time(begin), format_time(end), end - begin))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

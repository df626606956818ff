cat > /app/redact.py <<'EOF'
import re
import sys

W = r"A-Za-z0-9_"
KEY = re.compile(r"(?<![%s])(?:AKIA|ASIA)[A-Z0-9]{16}(?![%s])" % (W, W))
BEARER = re.compile(r"(?<![%s])(bearer[ \t]+)([A-Za-z0-9._~+/=-]+)" % W, re.IGNORECASE | re.ASCII)
SECRET = re.compile(
    r"((?:password|passwd|secret|api_key)[%s-]*\"?[ \t]*[=:][ \t]*)(?:(\")((?:[^\"]|(?<=\\)\")*)|([^ \t,;&\"]+))" % W,
    re.IGNORECASE | re.ASCII,
)
LOGIN = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*://)[^/@ \t:]*:[^/@ \t]*@")

def luhn(digits):
    total = 0
    for place, digit in enumerate(reversed(digits)):
        value = int(digit) * (2 if place % 2 else 1)
        total += value - 9 if value > 9 else value
    return total % 10 == 0


def cards(text):
    """Places of cards, and what goes there."""
    at = 0
    while at < len(text):
        if text[at] in "0123456789" and not (at and re.match("[%s-]" % W, text[at - 1])):
            end = card_end(text, at)
            if end:
                yield at, end, "[CARD %s]" % re.sub("[ -]", "", text[at:end])[-4:]
                at = end
                continue
        at += 1


def card_end(text, at):
    """Where the longest card that begins there ends, or 0."""
    best, place, count = 0, at, 0
    while place < len(text) and count < 19:
        if text[place] in "0123456789":
            count += 1
            place += 1
            free = not re.match("[%s-]" % W, text[place : place + 1])
            if count >= 13 and free and luhn(re.sub("[ -]", "", text[at:place])):
                best = place
        elif text[place] in " -" and text[place + 1 : place + 2] in tuple("0123456789"):
            place += 1
        else:
            break
    return best


def secrets(text):
    for found in SECRET.finditer(text):
        group = 3 if found[2] else 4
        if found[group]:
            yield found.start(group), found.end(group), "[SECRET]"


RULES = (
    lambda text: [(found.start(), found.end(), "[KEY]") for found in KEY.finditer(text)],
    lambda text: [(found.start(2), found.end(2), "[TOKEN]") for found in BEARER.finditer(text)],
    secrets,
    lambda text: [(found.end(1), found.end() - 1, "[LOGIN]") for found in LOGIN.finditer(text)],
    cards,
)


def redact(text):
    pieces = [(text, True)]  # whether it is still the log's own
    for rule in RULES:
        made = []
        for piece, own in pieces:
            at = 0
            for begin, end, instead in rule(piece) if own else ():
                made += [(piece[at:begin], True), (instead, False)]
                at = end
            made.append((piece[at:], own))
        pieces = made
    return "".join(piece for piece, _ in pieces)


for raw in sys.stdin.buffer:
    body = raw.rstrip(b"\n")
    end = raw[len(body) :]
    if body.endswith(b"\r"):
        body, end = body[:-1], b"\r" + end
    text = redact(body.decode("utf-8", "surrogateescape"))
    sys.stdout.buffer.write(text.encode("utf-8", "surrogateescape") + end)
EOF

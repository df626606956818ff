cat > /app/columns.py <<'EOF'
import re
import sys
import unicodedata

NUMBER = re.compile(r"[-+]?[0-9]+(?:[,_][0-9]+)*(?:\.[0-9]+)?%?")
LEAST = 8


def size(text):
    total = 0
    for each in text:
        if unicodedata.category(each) not in ("Mn", "Me", "Cf"):
            total += 2 if unicodedata.east_asian_width(each) in "WF" else 1
    return total


def read(text):
    rows = []
    for line in text.split("\n"):
        line = line.removesuffix("\r")
        if not line:
            continue
        cells = [cell.strip(" ") for cell in line.split("\t")]
        rows.append(["".join("·" if unicodedata.category(each) == "Cc" else each for each in cell) for cell in cells])
    count = max(map(len, rows), default=0)
    return [row + [""] * (count - len(row)) for row in rows]


def cut(word, width):
    """Pieces of a word, each as wide as fits."""
    pieces, now = [], ""
    for each in word:
        if now and size(now + each) > width:
            pieces.append(now)
            now = ""
        now += each
    return pieces + [now]


def wrapped(text, width):
    if size(text) <= width:
        return [text]
    lines, now = [], ""
    for word in text.split(" "):
        if not word:
            continue
        if now and size(now) + 1 + size(word) <= width:
            now += " " + word
            continue
        if now:
            lines.append(now)
        *whole, now = cut(word, width)
        lines += whole
    return lines + [now]


def padded(text, width, right):
    gap = " " * (width - size(text))
    return gap + text if right else text + gap


def main(arguments):
    limit = None
    if arguments:
        if len(arguments) != 2 or arguments[0] != "--width" or not re.fullmatch("[0-9]{2,4}", arguments[1]):
            return 2
        limit = int(arguments[1])
        if not 20 <= limit <= 1000:
            return 2
    try:
        rows = read(sys.stdin.buffer.read().decode("utf-8"))
    except UnicodeDecodeError:
        return 2
    if not rows:
        return 0
    columns = list(zip(*rows))
    widths = [max(1, max(map(size, column))) for column in columns]
    numbers = [
        any(column[1:]) and all(NUMBER.fullmatch(cell) for cell in column[1:] if cell) for column in columns
    ]
    while limit and sum(widths) + 2 * (len(widths) - 1) > limit:
        free = [at for at, width in enumerate(widths) if not numbers[at] and width > LEAST]
        if not free:
            break
        widest = max(free, key=lambda at: (widths[at], at))
        widths[widest] -= 1
    out = []
    for number, row in enumerate(rows):
        cells = [wrapped(cell, width) for cell, width in zip(row, widths)]
        for line in range(max(map(len, cells))):
            parts = [cell[line] if line < len(cell) else "" for cell in cells]
            out.append("  ".join(map(padded, parts, widths, numbers)).rstrip(" "))
        if number == 0:
            out.append("  ".join("─" * width for width in widths))
    sys.stdout.buffer.write("".join(line + "\n" for line in out).encode())
    return 0


sys.exit(main(sys.argv[1:]))
EOF

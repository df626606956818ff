cat > /app/ledger.py <<'EOF'
import os
import re
import sys
from datetime import datetime

MINUS = {letter: str(digit) for digit, letter in enumerate("}JKLMNOPQR")}
PLUS = {letter: str(digit) for digit, letter in enumerate("{ABCDEFGHI")}
SIGNED = r"[0-9]*[0-9{}A-R]"
FORM = {
    "H": ((8, r"[0-9]{8}"),),
    "A": ((8, r"[0-9]{8}"), (20, None), (3, r"[A-Z]{3}"), (11, SIGNED)),
    "T": ((8, r"[0-9]{8}"), (6, r"[0-9]{6}"), (11, SIGNED), (20, None)),
    "Z": ((8, r"[0-9]{8}"), (15, SIGNED)),
}


def hundredths(text):
    last = text[-1]
    if last in MINUS:
        return -int(text[:-1] + MINUS[last])
    return int(text[:-1] + PLUS.get(last, last))


def money(value):
    return "%s%d.%02d" % ("-" if value < 0 else "", abs(value) // 100, abs(value) % 100)


def field(text):
    return '"' + text.replace('"', '""') + '"' if re.search('[,"\r\n]', text) else text


def parsed(line):
    """Its fields; None if one is not as it must be."""
    at, found = 1, []
    width = 1 + sum(size for size, _ in FORM[line[0]])
    if line[width:].strip(" "):
        return None
    line = line.ljust(width)
    for size, form in FORM[line[0]]:
        text = line[at : at + size]
        if form and not re.fullmatch(form, text):
            return None
        found.append(text if form else text.rstrip(" "))
        at += size
    try:
        if line[0] == "H":
            datetime.strptime(found[0], "%Y%m%d")
        if line[0] == "T":
            datetime.strptime(found[1], "%H%M%S")
            if found[1][4:] > "59":
                return None
    except ValueError:
        return None
    return found


def main(path, out):
    with open(path, encoding="latin-1", newline="\n") as file:
        lines = file.read().split("\n")
    if lines[-1] == "":
        lines.pop()
    rejected, fields = {}, {}
    for number, line in enumerate(lines, 1):
        kind = line[:1]
        if not kind or kind not in FORM or (kind == "H") != (number == 1) and kind == "H" or kind == "Z" and number != len(lines):
            rejected[number] = "kind"
            continue
        found = parsed(line)
        if found is None:
            rejected[number] = "field"
        else:
            fields[number] = (kind, found)
    if fields.get(1, "?")[0] != "H" or fields.get(len(lines), "?")[0] != "Z":
        print("ledger.py: the first line or the last one is not as it must be", file=sys.stderr)
        return 2
    day = fields[1][1][0]
    count = sum(kind in "AT" for kind, _ in fields.values())
    total = sum(hundredths(found[2]) for kind, found in fields.values() if kind == "T")
    accounts = {}
    for number, (kind, found) in fields.items():
        if kind == "A":
            if found[0] in accounts:
                rejected[number] = "twice"
            else:
                accounts[found[0]] = (found[1], found[2], hundredths(found[3]), [])
    for number, (kind, found) in fields.items():
        if kind == "T":
            if found[0] in accounts:
                accounts[found[0]][3].append((found[1], number, hundredths(found[2]), found[3]))
            else:
                rejected[number] = "account"
    os.makedirs(out, exist_ok=True)

    def write(name, header, rows):
        with open(os.path.join(out, name), "w", encoding="utf-8", newline="\n") as file:
            file.write(header + "\n")
            for row in rows:
                file.write(",".join(field(str(each)) for each in row) + "\n")

    write("accounts.csv", "account,owner,currency,opening,transactions,closing", (
        (name, owner, currency, money(opening), len(those), money(opening + sum(each[2] for each in those)))
        for name, (owner, currency, opening, those) in sorted(accounts.items())
    ))
    date = "%s-%s-%s" % (day[:4], day[4:6], day[6:])
    write("transactions.csv", "account,at,amount,text", (
        (name, "%sT%s:%s:%s" % (date, at[:2], at[2:4], at[4:]), money(amount), text)
        for name, (*_, those) in sorted(accounts.items()) for at, _, amount, text in sorted(those)
    ))
    write("rejected.csv", "line,reason", sorted(rejected.items()))
    last = fields[len(lines)][1]
    if int(last[0]) == count and hundredths(last[1]) == total:
        print("ok")
        return 0
    print("totals differ")
    return 1


sys.exit(main(sys.argv[1], sys.argv[2]))
EOF

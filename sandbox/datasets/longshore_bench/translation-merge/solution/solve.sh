cat > /app/pomerge.py <<'EOF'
import re
import sys

ESCAPES = {"n": "\n", "t": "\t"}


class Entry:
    def __init__(self):
        self.own, self.extracted, self.references, self.flags, self.previous = [], [], [], [], []
        self.context = self.id = self.plural = None
        self.strings, self.obsolete = {}, False

    @property
    def key(self):
        return self.context, self.id

    @property
    def fuzzy(self):
        return "fuzzy" in self.flags

    @property
    def translated(self):
        return any(self.strings.values())


def unquoted(text):
    return re.sub(r"\\(.)", lambda found: ESCAPES.get(found[1], found[1]), text.strip()[1:-1])


def read(path):
    found, entry, last = [], Entry(), None
    with open(path, encoding="utf-8") as file:
        lines = file.read().split("\n")
    for line in [*lines, ""]:
        if not line.strip():
            if entry.id is not None:
                found.append(entry)
            if entry.id is not None or not entry.own:
                entry, last = Entry(), None
            continue
        if line.startswith("#~"):
            line = line[2:].lstrip()
            if line.startswith("|"):
                continue
            entry.obsolete = True
        elif line.startswith("#."):
            entry.extracted.append(line)
            continue
        elif line.startswith("#:"):
            entry.references.append(line)
            continue
        elif line.startswith("#,"):
            entry.flags += [each.strip() for each in line[2:].split(",") if each.strip()]
            continue
        elif line.startswith("#|"):
            entry.previous.append(line)
            continue
        elif line.startswith("#"):
            entry.own.append(line)
            continue
        word, _, rest = line.strip().partition(" ")
        if word.startswith('"'):
            rest, word = line, last
        else:
            last = word
        text = unquoted(rest)
        if word == "msgctxt":
            entry.context = (entry.context or "") + text
        elif word == "msgid":
            entry.id = (entry.id or "") + text
        elif word == "msgid_plural":
            entry.plural = (entry.plural or "") + text
        else:
            number = int(word[7:-1]) if "[" in word else 0
            entry.strings[number] = entry.strings.get(number, "") + text
    return found


def quoted(text):
    for plain, escaped in (("\\", "\\\\"), ('"', '\\"'), ("\n", "\\n"), ("\t", "\\t")):
        text = text.replace(plain, escaped)
    return '"' + text + '"'


def said(word, text):
    if "\n" not in text[:-1]:
        return [word + " " + quoted(text)]
    return [word + ' ""'] + [quoted(each) for each in re.findall(r"[^\n]*\n|[^\n]+", text)]


def strings(entry):
    lines = said("msgctxt", entry.context) if entry.context is not None else []
    lines += said("msgid", entry.id)
    if entry.plural is None:
        return lines + said("msgstr", entry.strings.get(0, ""))
    lines += said("msgid_plural", entry.plural)
    for number in sorted(entry.strings):
        lines += said("msgstr[%d]" % number, entry.strings[number])
    return lines


def written(entry):
    flags = ["#, " + ", ".join(entry.flags)] if entry.flags else []
    body = strings(entry)
    if entry.obsolete:
        return entry.own + flags + ["#~ " + line for line in body]
    return entry.own + entry.extracted + entry.references + flags + entry.previous + body


def header(old, new):
    date = re.search(r"^POT-Creation-Date:.*$", new.strings.get(0, ""), re.MULTILINE)
    made = Entry()
    made.own, made.id = old.own, ""
    made.flags = [each for each in old.flags if each != "fuzzy"]
    text = old.strings.get(0, "")
    if date:
        text = re.sub(r"^POT-Creation-Date:.*$", lambda _: date[0], text, flags=re.MULTILINE)
    made.strings = {0: text}
    return made


def merged(new, old, count):
    made = Entry()
    made.context, made.id, made.plural = new.key + (new.plural,)
    made.extracted, made.references = new.extracted, new.references
    fuzzy = False
    numbers = range(count) if new.plural is not None else range(1)
    made.strings = dict.fromkeys(numbers, "")
    if old:
        made.own = old.own
        fuzzy = old.fuzzy
        if old.plural == new.plural and new.plural is not None:
            made.strings = dict(old.strings)
        for number in numbers:
            made.strings[number] = old.strings.get(number, "")
        if old.plural != new.plural and made.translated:
            fuzzy = True
        if fuzzy and old.fuzzy:
            made.previous = old.previous
    made.flags = ["fuzzy"] * fuzzy + [each for each in new.flags if each != "fuzzy"]
    return made


def main(old_path, new_path):
    old, new = read(old_path), read(new_path)
    nplurals = re.search(r"nplurals\s*=\s*(\d+)", old[0].strings.get(0, ""))
    count = int(nplurals[1]) if nplurals else 2
    fits = {}
    for entry in sorted(old[1:], key=lambda each: each.obsolete):
        fits.setdefault(entry.key, entry)
    out, used = [header(old[0], new[0])], set()
    for entry in new[1:]:
        out.append(merged(entry, fits.get(entry.key), count))
        used.add(entry.key)
    for entry in old[1:]:
        if entry.key not in used and entry.translated and fits[entry.key] is entry:
            made = Entry()
            made.own, made.obsolete, made.flags = entry.own, True, ["fuzzy"] * entry.fuzzy
            made.context, made.id, made.plural, made.strings = entry.context, entry.id, entry.plural, entry.strings
            out.append(made)
    text = "\n\n".join("\n".join(written(entry)) for entry in out) + "\n"
    sys.stdout.buffer.write(text.encode())


main(*sys.argv[1:3])
EOF

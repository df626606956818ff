cat > /app/conf.py <<'EOF'
"""conf.py FILE [NAME]: see SPEC.md"""

import os
import re
import sys


class Wrong(Exception):
    def __init__(self, code, text):
        self.code, self.text = code, text


def at(path, number):
    return "%s:%d: " % (os.path.basename(path), number)


def logical(path, where):
    """Number and text of each line, those that go on joined."""
    try:
        with open(path, encoding="utf-8", newline="\n") as file:
            lines = file.read().split("\n")
    except (OSError, ValueError) as error:
        raise Wrong(2, where + "cannot be read: %s" % error) from error
    if lines and not lines[-1]:
        lines.pop()
    number = 0
    while number < len(lines):
        begin, text = number + 1, lines[number]
        while text.endswith("\\") and number + 1 < len(lines):
            number += 1
            text = text[:-1] + lines[number].lstrip()
        number += 1
        yield begin, text.strip()


NAME = r"[A-Za-z0-9_-]+"


def load(path, settings, above, where):
    section = ""
    for number, line in logical(path, where):
        here = at(path, number)
        if not line or line[0] in "#;":
            continue
        head = re.fullmatch(r"\[(%s)?\]" % NAME, line)
        included = re.fullmatch(r"include\s+([^=\s].*|=\S.*)", line)
        setting = re.fullmatch(r"(%s)\s*(\+?=)(.*)" % NAME, line, re.DOTALL)
        if head:
            section = head[1] or ""
        elif setting:
            name = section + "." + setting[1] if section else setting[1]
            value = parse(setting[3].strip(), here)
            if setting[2] == "+=" and name in settings:
                value = settings[name][1] + "," + value
            settings[name] = (section, value)
        elif included:
            target = os.path.join(os.path.dirname(path), included[1])
            if os.path.realpath(target) in above:
                raise Wrong(3, here + "circle of includes")
            load(target, settings, above + [os.path.realpath(target)], here)
        else:
            raise Wrong(2, here + "neither a section nor a setting")


def parse(text, here):
    if not text.startswith('"'):
        return re.split(r"(?:^|\s+)#", text, maxsplit=1)[0].strip() if not text.startswith("#") else text
    found = re.fullmatch(r'"((?:[^"\\]|\\.)*)"\s*(?:#.*)?', text, re.DOTALL)
    if not found:
        raise Wrong(2, here + "a quoted value does not end")
    return re.sub(r"\\(.)", lambda each: {"n": "\n", "t": "\t"}.get(each[1], each[1]), found[1])


def resolved(name, settings, above=()):
    if name in above:
        raise Wrong(4, name + ": refers to itself")
    section, value = settings[name]

    def one(found):
        wanted = found[1]
        if wanted is None:
            return "${"
        if wanted.startswith("ENV:"):
            if wanted[4:] not in os.environ:
                raise Wrong(4, name + ": no variable " + wanted)
            return os.environ[wanted[4:]]
        for full in ([section + "." + wanted] if section else []) + [wanted]:
            if full in settings:
                return resolved(full, settings, above + (name,))
        raise Wrong(4, name + ": no setting " + wanted)

    return re.sub(r"\$\$\{|\$\{([^}]*)\}", one, value)


def shown(value):
    return value.replace("\\", "\\\\").replace("\n", "\\n").replace("\t", "\\t")


def main(path, *names):
    settings = {}
    load(path, settings, [os.path.realpath(path)], at(path, 0))
    if names:
        if names[0] not in settings:
            raise Wrong(5, names[0] + ": no such setting")
        return resolved(names[0], settings) + "\n"
    return "".join(
        name + "=" + shown(resolved(name, settings)) + "\n" for name in sorted(settings, key=str.encode)
    )


try:
    sys.stdout.write(main(*sys.argv[1:3]))
except Wrong as error:
    print(error.text, file=sys.stderr)
    sys.exit(error.code)
EOF

cat > /app/build.sh <<'EOF'
#!/bin/bash
exec python3 - "$1" "$2" <<'PY'
import os
import re
import sys

site, out = (each.encode() for each in sys.argv[1:3])


class Broken(Exception):
    pass


def lines_of(path, above=()):
    if path in above:
        raise Broken
    try:
        with open(path, "rb") as file:
            text = file.read()
    except OSError:
        raise Broken from None
    for line in text.removesuffix(b"\n").split(b"\n") if text else []:
        part = re.fullmatch(rb"[ \t]*@include[ \t]+(.*\S)[ \t]*", line)
        if part:
            yield from lines_of(os.path.normpath(os.path.join(site, b"parts", part[1])), above + (path,))
        else:
            yield line


values = {}
if os.path.exists(os.path.join(site, b"vars")):
    with open(os.path.join(site, b"vars"), "rb") as file:
        for line in file.read().split(b"\n"):
            key, equals, value = line.partition(b"=")
            if equals:
                values[key] = value
said, pages, code = [], set(), 0
root = os.path.join(site, b"pages")
for folder, _, names in sorted(os.walk(root)):
    for name in sorted(names):
        if not name.endswith(b".page"):
            continue
        path = os.path.join(folder, name)
        inside = os.path.relpath(path, root)
        target = inside[:-5] + b".html"
        pages.add(target)
        try:
            text = b"".join(line + b"\n" for line in lines_of(path))
        except Broken:
            sys.stderr.buffer.write(inside + b": a part is missing or includes itself\n")
            code = 1
            continue
        text = re.sub(rb"\{\{([A-Z0-9_]+)\}\}", lambda found: values.get(found[1], found[0]), text)
        whole = os.path.join(out, target)
        try:
            with open(whole, "rb") as file:
                if file.read() == text:
                    continue
        except OSError:
            pass
        os.makedirs(os.path.dirname(whole), exist_ok=True)
        with open(whole, "wb") as file:
            file.write(text)
        said.append(b"built " + target)
for folder, _, names in os.walk(out, topdown=False):
    for name in names:
        inside = os.path.relpath(os.path.join(folder, name), out)
        if name.endswith(b".html") and inside not in pages:
            os.unlink(os.path.join(folder, name))
            said.append(b"removed " + inside)
    if folder != out and not os.listdir(folder):
        os.rmdir(folder)
sys.stdout.buffer.write(b"".join(line + b"\n" for line in sorted(said)))
sys.exit(code)
PY
EOF

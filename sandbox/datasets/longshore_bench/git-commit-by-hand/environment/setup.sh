set -e
cat > /tmp/make.py <<'EOF'
import hashlib
import os
import zlib

GIT = "/app/repo/.git/"


def put(kind, body):
    whole = ("%s %d" % (kind, len(body))).encode() + b"\0" + body
    name = hashlib.sha1(whole).hexdigest()
    path = GIT + "objects/" + name[:2] + "/" + name[2:]
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "wb") as file:
        file.write(zlib.compress(whole, 1))
    return name


def tree(files):
    entries, below = [], {}
    for path, (mode, content) in files.items():
        first, slash, rest = path.partition("/")
        if slash:
            below.setdefault(first, {})[rest] = (mode, content)
        else:
            entries.append((first.encode(), mode, put("blob", content)))
    entries += [(name.encode(), "40000", tree(inside)) for name, inside in below.items()]
    entries.sort(key=lambda each: each[0] + (b"/" if each[1] == "40000" else b""))
    return put("tree", b"".join(mode.encode() + b" " + name + b"\0" + bytes.fromhex(sha) for name, mode, sha in entries))


def commit(files, parents, message, when):
    who = "Ada Holm <ada@quay.example> %d +0100" % when
    lines = ["tree " + tree(files)] + ["parent " + each for each in parents] + ["author " + who, "committer " + who]
    return put("commit", ("\n".join(lines) + "\n\n" + message + "\n").encode())


def write(path, data):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "wb") as file:
        file.write(data)


base = {
    "README": ("100644", b"quay\n"),
    "run.sh": ("100644", b"#!/bin/sh\necho quay\n"),
    "old.txt": ("100644", b"old\n"),
    "lib/util.c": ("100755", b"int util;\n"),
    "src/main.c": ("100644", b"int main;\n"),
    "src-tools/x": ("100644", b"x\n"),
    "src.txt": ("100644", b"about src\n"),
    "docs.md": ("100644", b"about docs\n"),
    "docs/zz": ("100644", b"z\n"),
    "docs-old": ("100644", b"o\n"),
    "link": ("120000", b"README"),
}
first = commit(base, [], "Begin", 1700000000)
main = commit(dict(base, README=("100644", b"quay, main\n")), [first], "Main goes on", 1700000500)
release = commit(dict(base, README=("100644", b"quay 1.0\n")), [first], "Release 1.0", 1700000600)
zero = "0" * 40
who = "Ada Holm <ada@quay.example>"
for path, text in {
    "HEAD": "ref: refs/heads/main\n",
    "config": "[core]\n\trepositoryformatversion = 0\n\tbare = false\n",
    "refs/heads/main": main + "\n",
    "refs/heads/release": release + "\n",
    "logs/HEAD": "%s %s %s 1700000500 +0100\tcommit: Main goes on\n" % (first, main, who),
    "logs/refs/heads/release": "%s %s %s 1700000550 +0100\tbranch: Created from %s\n%s %s %s 1700000600 +0100\tcommit: Release 1.0\n"
    % (zero, first, who, first[:7], first, release, who),
}.items():
    write(GIT + path, text.encode())
for path, (mode, content) in base.items():
    if mode == "120000":
        os.symlink(content, "/app/repo/" + path)
    else:
        write("/app/repo/" + path, b"quay, main\n" if path == "README" else content)
write("/app/intro.md", "# Quay — an introduction\n\nMoor here.\n".encode())
EOF
python3 /tmp/make.py
rm /tmp/make.py

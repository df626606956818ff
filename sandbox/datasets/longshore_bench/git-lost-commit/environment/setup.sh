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
    """Path → (mode, content)."""
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


def write(path, text):
    os.makedirs(os.path.dirname(GIT + path), exist_ok=True)
    with open(GIT + path, "w") as file:
        file.write(text)


base = {
    "README.md": ("100644", b"# Quay\n"),
    "bin/load": ("100644", b"#!/bin/sh\necho load\n"),
    "old.txt": ("100644", b"old\n"),
    "data/a.csv": ("100644", b"1,2\n"),
    "data/b.csv": ("100644", b"3,4\n"),
}
first = commit(base, [], "Begin", 1700000000)
second = commit(dict(base, **{"README.md": ("100644", b"# Quay\n\nMore.\n")}), [first], "More", 1700000100)
lost_files = dict(base, **{
    "README.md": ("100644", b"# Quay\n\nMore.\n"),
    "bin/load": ("100755", b"#!/bin/sh\necho load\n"),
    "bin/unload me": ("100755", b"#!/bin/sh\necho unload\n"),
    "data/deep/er/c.bin": ("100644", bytes(range(256))),
    "data/a.csv": ("100644", b"1,2\n9,9\n"),
})
del lost_files["old.txt"], lost_files["data/b.csv"]
lost = commit(lost_files, [second], "Unloading", 1700000200)
side = commit(dict(base, **{"side.txt": ("100644", b"side\n")}), [second], "Side", 1700000300)
dropped = commit(dict(base, **{"draft.txt": ("100644", b"draft\n")}), [first], "A draft", 1700000050)
write("HEAD", "ref: refs/heads/main\n")
write("refs/heads/main", second + "\n")
write("refs/heads/side", side + "\n")
write("config", "[core]\n\trepositoryformatversion = 0\n\tbare = false\n")
zero = "0" * 40
log = [
    (zero, first, 1700000000, "commit (initial): Begin"),
    (first, dropped, 1700000050, "commit: A draft"),
    (dropped, first, 1700000060, "reset: moving to HEAD~1"),
    (first, second, 1700000100, "commit: More"),
    (second, lost, 1700000200, "commit: Unloading"),
    (lost, side, 1700000310, "checkout: moving from main to side"),
    (side, lost, 1700000320, "checkout: moving from side to main"),
    (lost, second, 1700000400, "reset: moving to HEAD~1"),
]
text = "".join("%s %s Ada Holm <ada@quay.example> %d +0100\t%s\n" % each for each in log)
write("logs/HEAD", text)
EOF
python3 /tmp/make.py
rm /tmp/make.py

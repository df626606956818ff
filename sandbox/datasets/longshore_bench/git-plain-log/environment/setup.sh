set -e
cat > /tmp/make.py <<'EOF'
import hashlib
import os
import zlib

GIT = "/app/example/.git/"


def put(kind, body):
    whole = ("%s %d" % (kind, len(body))).encode() + b"\0" + body
    name = hashlib.sha1(whole).hexdigest()
    path = GIT + "objects/" + name[:2] + "/" + name[2:]
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "wb") as file:
        file.write(zlib.compress(whole, 1))
    return name


def commit(parents, when, message):
    who = "Ada Holm <ada@quay.example> %d +0545" % when
    lines = ["tree " + put("tree", b"")] + ["parent " + each for each in parents]
    return put("commit", ("\n".join(lines + ["author " + who, "committer " + who]) + "\n\n" + message + "\n").encode())


a = commit([], 1709230000, "Begin")
b = commit([a], 1709230100, "Left")
c = commit([a], 1709230200, "Right,\nin two lines\n\nand a body")
d = commit([b, c], 1709230300, "Merge")
tag = put("tag", ("object %s\ntype commit\ntag v1\ntagger Ada <a> 0 +0000\n\nv1\n" % b).encode())
for path, text in {
    "HEAD": "ref: refs/heads/main\n",
    "refs/heads/main": d + "\n",
    "packed-refs": "# pack-refs with: peeled fully-peeled sorted\n%s refs/heads/right\n%s refs/tags/v1\n^%s\n" % (c, tag, b),
}.items():
    os.makedirs(os.path.dirname(GIT + path), exist_ok=True)
    with open(GIT + path, "w") as file:
        file.write(text)
with open("/app/expected.txt", "w") as file:
    file.write("%s 2024-02-29 23:56 +0545 Ada Holm: Merge (HEAD -> main)\n" % d[:8])
    file.write("%s 2024-02-29 23:55 +0545 Ada Holm: Right, in two lines (right)\n" % c[:8])
    file.write("%s 2024-02-29 23:53 +0545 Ada Holm: Left (tag: v1)\n" % b[:8])
    file.write("%s 2024-02-29 23:51 +0545 Ada Holm: Begin\n" % a[:8])
EOF
python3 /tmp/make.py
rm /tmp/make.py

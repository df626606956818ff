cat > /tmp/commit.py <<'EOF'
import hashlib
import os
import zlib

GIT = "/app/repo/.git/"


def get(name):
    with open(GIT + "objects/" + name[:2] + "/" + name[2:], "rb") as file:
        return zlib.decompress(file.read()).partition(b"\0")[2]


def put(kind, body):
    whole = ("%s %d" % (kind, len(body))).encode() + b"\0" + body
    name = hashlib.sha1(whole).hexdigest()
    path = GIT + "objects/" + name[:2] + "/" + name[2:]
    if not os.path.exists(path):
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "wb") as file:
            file.write(zlib.compress(whole))
    return name


def read_tree(name):
    """Name → [mode, hash], or what is below."""
    found, body = {}, get(name)
    while body:
        head, _, rest = body.partition(b"\0")
        mode, _, entry = head.partition(b" ")
        found[entry] = read_tree(rest[:20].hex()) if mode == b"40000" else (mode, rest[:20].hex())
        body = rest[20:]
    return found


def write_tree(entries):
    rows = []
    for name, value in entries.items():
        if isinstance(value, dict):
            rows.append((name + b"/", b"40000 " + name, write_tree(value)))
        else:
            rows.append((name, value[0] + b" " + name, value[1]))
    return put("tree", b"".join(head + b"\0" + bytes.fromhex(sha) for _, head, sha in sorted(rows)))


with open(GIT + "refs/heads/release") as file:
    parent = file.read().strip()
root = read_tree(get(parent).split(b"\n")[0].split()[1].decode())
with open("/app/intro.md", "rb") as file:
    root[b"docs"][b"guide"] = {b"intro.md": (b"100644", put("blob", file.read()))}
root[b"run.sh"] = (b"100755", root[b"run.sh"][1])
del root[b"old.txt"]
root[b"src"][b"util.c"] = root.pop(b"lib")[b"util.c"]
committer = "Build Bot <bot@quay.example> 1700002000 +0000"
new = put("commit", (
    "tree %s\nparent %s\nauthor Mia Sand <mia@quay.example> 1700001000 +0100\ncommitter %s\n\nRelease 1.1\n"
    % (write_tree(root), parent, committer)
).encode())
with open(GIT + "refs/heads/release", "w") as file:
    file.write(new + "\n")
with open(GIT + "logs/refs/heads/release", "a") as file:
    file.write("%s %s %s\tcommit: Release 1.1\n" % (parent, new, committer))
EOF
python3 /tmp/commit.py

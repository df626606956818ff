cat > /tmp/recover.py <<'EOF'
import os
import zlib

GIT = "/app/repo/.git/"


def get(name):
    with open(GIT + "objects/" + name[:2] + "/" + name[2:], "rb") as file:
        return zlib.decompress(file.read()).partition(b"\0")[2]


def files(tree, above=""):
    found, body = {}, get(tree)
    while body:
        head, _, rest = body.partition(b"\0")
        mode, _, name = head.partition(b" ")
        sha, body = rest[:20].hex(), rest[20:]
        path = above + name.decode()
        if mode == b"40000":
            found.update(files(sha, path + "/"))
        else:
            found[path] = (mode, sha)
    return found


def of_commit(name):
    return files(get(name).split(b"\n")[0].split()[1].decode())


with open(GIT + "logs/HEAD") as log:
    last = [line for line in log if "\treset: " in line][-1].split()
lost, now = of_commit(last[0]), of_commit(last[1])
os.makedirs("/app/recovered/files")
for path, (mode, sha) in lost.items():
    if path not in now or now[path][1] != sha:
        target = "/app/recovered/files/" + path
        os.makedirs(os.path.dirname(target), exist_ok=True)
        with open(target, "wb") as file:
            file.write(get(sha))
        os.chmod(target, 0o755 if mode == b"100755" else 0o644)
with open("/app/recovered/COMMIT", "w") as file:
    file.write(last[0] + "\n")
with open("/app/recovered/REMOVED", "w") as file:
    file.writelines(path + "\n" for path in sorted(set(now) - set(lost)))
EOF
python3 /tmp/recover.py

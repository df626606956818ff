# Sorted by time alone; refs are files only; no revisions but HEAD and branches.
cat > /app/glog.py <<'EOF'
import os, sys, time, zlib
git = sys.argv[1] + "/.git/"
def get(n): return zlib.decompress(open(git + "objects/" + n[:2] + "/" + n[2:], "rb").read()).partition(b"\0")[2].decode()
refs = {}
for d, _, names in os.walk(git + "refs"):
    for n in names: refs[os.path.relpath(os.path.join(d, n), git)] = open(os.path.join(d, n)).read().strip()
for line in open(git + "packed-refs") if os.path.exists(git + "packed-refs") else []:
    if line[0] not in "#^": refs.setdefault(line.split()[1], line.split()[0])
head = open(git + "HEAD").read().strip()
branch = head[5:] if head.startswith("ref: ") else None
rev = sys.argv[2] if len(sys.argv) > 2 else "HEAD"
start = (refs.get(branch) if branch else head) if rev == "HEAD" else refs.get("refs/tags/" + rev, refs.get("refs/heads/" + rev, refs.get(rev)))
if not start: print("nowhere", file=sys.stderr); sys.exit(3)
deco = {}
if branch in refs: deco.setdefault(refs[branch], []).append("HEAD -> " + branch[11:])
elif not branch: deco.setdefault(head, []).append("HEAD")
for r in sorted(refs):
    if r != branch:
        n = refs[r]; body = get(n)
        if body.startswith("object "): n = body.split()[1]
        deco.setdefault(n, []).append(("tag: " if r.startswith("refs/tags/") else "") + r.split("/", 2)[2])
seen, todo = {}, [start]
while todo:
    n = todo.pop()
    if n in seen: continue
    body = get(n)
    if body.startswith("object "): todo.append(body.split()[1]); continue
    h, _, m = body.partition("\n\n"); h = h.split("\n"); seen[n] = (h, m)
    todo += [l[7:] for l in h if l.startswith("parent ")]
def key(n): return (-int([l for l in seen[n][0] if l.startswith("committer ")][0].split()[-2]), n)
for n in sorted(seen, key=key):
    a = [l for l in seen[n][0] if l.startswith("author ")][0][7:]; s, o = a.split()[-2:]
    t = time.gmtime(int(s) + (int(o[1:3]) * 3600 + int(o[3:]) * 60) * (-1 if o[0] == "-" else 1))
    print(n[:8], time.strftime("%Y-%m-%d %H:%M", t), o, a.partition(" <")[0] + ": " + " ".join(seen[n][1].split("\n\n")[0].split("\n")).strip() + (" (%s)" % ", ".join(deco[n]) if n in deco else ""))
EOF

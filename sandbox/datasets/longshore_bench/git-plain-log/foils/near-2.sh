# The order is right; dates are in UTC, objects are believed, and encodings and packed refs unknown.
cat > /app/glog.py <<'EOF'
import os, re, sys, time, zlib
git = sys.argv[1] + "/.git/"
def get(n):
    try: return zlib.decompress(open(git + "objects/" + n[:2] + "/" + n[2:], "rb").read()).partition(b"\0")[2].decode(errors="replace")
    except OSError: sys.exit(4)
refs = {}
for d, _, names in os.walk(git + "refs"):
    for n in names: refs[os.path.relpath(os.path.join(d, n), git)] = open(os.path.join(d, n)).read().strip()
def peel(n):
    b = get(n)
    return peel(b.split()[1]) if b.startswith("object ") else n
head = open(git + "HEAD").read().strip()
branch = head[5:] if head.startswith("ref: ") else None
def parse(rev):
    base, steps = re.fullmatch(r"(.*?)((?:\^\d*|~\d*)*)", rev).groups()
    n = (refs.get(branch) if branch else head) if base == "HEAD" else refs.get("refs/tags/" + base) or refs.get("refs/heads/" + base) or refs.get(base)
    if not n and re.fullmatch("[0-9a-f]{4,}", base):
        f = [d + x for d in os.listdir(git + "objects") if len(d) == 2 for x in os.listdir(git + "objects/" + d) if (d + x).startswith(base)]
        n = f[0] if len(f) == 1 else None
    if not n: print("nowhere", file=sys.stderr); sys.exit(3)
    n = peel(n)
    for h, c in re.findall(r"([\^~])(\d*)", steps):
        c = int(c or 1)
        for s in [c] if h == "^" else [1] * c:
            ps = [l[7:] for l in get(n).partition("\n\n")[0].split("\n") if l.startswith("parent ")]
            if s > len(ps): print("nowhere", file=sys.stderr); sys.exit(3)
            n = ps[s - 1] if s else n
    return n
start = parse(sys.argv[2] if len(sys.argv) > 2 else "HEAD")
deco = {}
if branch in refs: deco.setdefault(refs[branch], []).append("HEAD -> " + branch[11:])
elif not branch: deco.setdefault(head, []).append("HEAD")
for r in sorted(refs):
    if r != branch: deco.setdefault(peel(refs[r]), []).append(("tag: " if "tags" in r else "") + r.split("/", 2)[2])
C, todo = {}, [start]
while todo:
    n = todo.pop()
    if n not in C:
        h, _, m = get(n).partition("\n\n"); h = h.split("\n"); C[n] = (h, m, [l[7:] for l in h if l.startswith("parent ")]); todo += C[n][2]
kids = {n: sum(n in c[2] for c in C.values()) for n in C}
t = lambda n: int([l for l in C[n][0] if l.startswith("committer ")][0].split()[-2])
ready = [start]
while ready:
    ready.sort(key=lambda n: (-t(n), n)); n = ready.pop(0)
    a = [l for l in C[n][0] if l.startswith("author ")][0][7:]; s, o = a.split()[-2:]
    print(n[:8], time.strftime("%Y-%m-%d %H:%M", time.gmtime(int(s))), o, a.partition(" <")[0] + ": " + " ".join(C[n][1].split("\n\n")[0].strip().split("\n")) + (" (%s)" % ", ".join(deco[n]) if n in deco else ""))
    for p in set(C[n][2]):
        kids[p] -= 1
        if not kids[p]: ready.append(p)
EOF

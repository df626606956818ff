# On top of main, whose branch it moves; the moved file loses its mode, and an empty lib stays.
cat > /tmp/c.py <<'EOF'
import hashlib, os, zlib
G = "/app/repo/.git/"
def get(n): return zlib.decompress(open(G + "objects/" + n[:2] + "/" + n[2:], "rb").read()).partition(b"\0")[2]
def put(k, b):
    w = ("%s %d" % (k, len(b))).encode() + b"\0" + b; n = hashlib.sha1(w).hexdigest()
    os.makedirs(G + "objects/" + n[:2], exist_ok=True); open(G + "objects/" + n[:2] + "/" + n[2:], "wb").write(zlib.compress(w)); return n
def rt(n):
    f, b = {}, get(n)
    while b:
        h, _, r = b.partition(b"\0"); m, _, e = h.partition(b" "); f[e] = rt(r[:20].hex()) if m == b"40000" else (m, r[:20].hex()); b = r[20:]
    return f
def wt(d):
    rows = [(n + b"/", b"40000 " + n, wt(v)) if isinstance(v, dict) else (n, v[0] + b" " + n, v[1]) for n, v in d.items()]
    return put("tree", b"".join(h + b"\0" + bytes.fromhex(s) for _, h, s in sorted(rows)))
p = open(G + "refs/heads/main").read().strip(); r = rt(get(p).split()[1].decode())
r[b"docs"][b"guide"] = {b"intro.md": (b"100644", put("blob", open("/app/intro.md", "rb").read()))}
r[b"run.sh"] = (b"100755", r[b"run.sh"][1]); del r[b"old.txt"]; r[b"src"][b"util.c"] = (b"100644", r[b"lib"].pop(b"util.c")[1])
c = "Build Bot <bot@quay.example> 1700002000 +0000"
n = put("commit", ("tree %s\nparent %s\nauthor Mia Sand <mia@quay.example> 1700001000 +0100\ncommitter %s\n\nRelease 1.1\n" % (wt(r), p, c)).encode())
for b in ("main", "release"): open(G + "refs/heads/" + b, "w").write(n + "\n")
open(G + "logs/refs/heads/release", "a").write("%s %s %s\tcommit: Release 1.1\n" % (p, n, c))
EOF
python3 /tmp/c.py

# A right commit, but trees are sorted by plain names, and the reflog is forgotten.
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
    return put("tree", b"".join((b"40000 " + n + b"\0" + bytes.fromhex(wt(v))) if isinstance(v, dict) else v[0] + b" " + n + b"\0" + bytes.fromhex(v[1]) for n, v in sorted(d.items())))
p = open(G + "refs/heads/release").read().strip(); r = rt(get(p).split()[1].decode())
r[b"docs"][b"guide"] = {b"intro.md": (b"100644", put("blob", open("/app/intro.md", "rb").read()))}
r[b"run.sh"] = (b"100755", r[b"run.sh"][1]); del r[b"old.txt"]; r[b"src"][b"util.c"] = r.pop(b"lib")[b"util.c"]
n = put("commit", ("tree %s\nparent %s\nauthor Mia Sand <mia@quay.example> 1700001000 +0100\ncommitter Build Bot <bot@quay.example> 1700002000 +0000\n\nRelease 1.1\n" % (wt(r), p)).encode())
open(G + "refs/heads/release", "w").write(n + "\n")
EOF
python3 /tmp/c.py

# The first reset of the reflog is taken: the draft.
cat > /tmp/r.py <<'EOF'
import os, zlib
G = "/app/repo/.git/"
def get(n): return zlib.decompress(open(G + "objects/" + n[:2] + "/" + n[2:], "rb").read()).partition(b"\0")[2]
def files(t, a=""):
    f, b = {}, get(t)
    while b:
        h, _, r = b.partition(b"\0"); m, _, n = h.partition(b" "); s, b = r[:20].hex(), r[20:]
        f.update(files(s, a + n.decode() + "/") if m == b"40000" else {a + n.decode(): (m, s)})
    return f
c = lambda n: files(get(n).split(b"\n")[0].split()[1].decode())
line = [l for l in open(G + "logs/HEAD") if "reset:" in l][0].split()
lost, now = c(line[0]), c(open(G + "refs/heads/main").read().strip())
for p, (m, s) in lost.items():
    if now.get(p, ("", ""))[1] != s:
        t = "/app/recovered/files/" + p; os.makedirs(os.path.dirname(t), exist_ok=True); open(t, "wb").write(get(s))
open("/app/recovered/COMMIT", "w").write(line[0] + "\n")
open("/app/recovered/REMOVED", "w").writelines(p + "\n" for p in sorted(set(now) - set(lost)))
EOF
python3 /tmp/r.py

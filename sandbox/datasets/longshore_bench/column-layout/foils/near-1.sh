# len() for widths, and textwrap for the rest.
cat > /app/columns.py <<'EOF'
import re, sys, textwrap
limit = int(sys.argv[2]) if len(sys.argv) > 2 else 10**9
rows = [[c.strip() for c in l.split("\t")] for l in sys.stdin.read().split("\n") if l]
n = max(map(len, rows)); rows = [r + [""] * (n - len(r)) for r in rows]
w = [max(1, *(len(r[i]) for r in rows)) for i in range(n)]
num = [all(re.fullmatch(r"[-+]?[\d,_]+(\.\d+)?%?", r[i]) for r in rows[1:] if r[i]) for i in range(n)]
while sum(w) + 2 * (n - 1) > limit:
    free = [i for i in range(n) if not num[i] and w[i] > 8]
    if not free: break
    w[max(free, key=lambda i: w[i])] -= 1
for k, r in enumerate(rows):
    cells = [textwrap.wrap(c, w[i]) or [""] for i, c in enumerate(r)]
    for j in range(max(map(len, cells))):
        print("  ".join((c[j] if j < len(c) else "").rjust(w[i]) if num[i] else (c[j] if j < len(c) else "").ljust(w[i]) for i, c in enumerate(cells)).rstrip())
    if k == 0: print("  ".join("─" * x for x in w))
EOF

# Wide characters are known; nothing is ever wrapped, only cut.
cat > /app/columns.py <<'EOF'
import re, sys, unicodedata
size = lambda t: sum(0 if unicodedata.category(c) in ("Mn", "Me", "Cf") else 2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in t)
limit = int(sys.argv[2]) if len(sys.argv) > 2 else 10**9
rows = [[c.strip() for c in l.split("\t")] for l in sys.stdin.read().split("\n") if l]
if rows:
    n = max(map(len, rows)); rows = [r + [""] * (n - len(r)) for r in rows]
    w = [max(1, *(size(r[i]) for r in rows)) if rows else 1 for i in range(n)]
    num = [any(r[i] for r in rows[1:]) and all(re.fullmatch(r"[-+]?\d+([,_]\d+)*(\.\d+)?%?", r[i]) for r in rows[1:] if r[i]) for i in range(n)]
    while sum(w) + 2 * (n - 1) > limit:
        free = [i for i in range(n) if not num[i] and w[i] > 8]
        if not free: break
        w[max(free, key=lambda i: (w[i], i))] -= 1
    for k, r in enumerate(rows):
        cells = []
        for i, c in enumerate(r):
            while size(c) > w[i]: c = c[:-1]
            cells.append(" " * (w[i] - size(c)) + c if num[i] else c + " " * (w[i] - size(c)))
        print("  ".join(cells).rstrip())
        if k == 0: print("  ".join("─" * x for x in w))
EOF

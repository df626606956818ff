# Floats and Python's rounding of halves; a value holds until the next one, however late that is.
cat > /app/resample.py <<'EOF'
import sys
from datetime import datetime, timezone
def t(s): return int(datetime.fromisoformat(s.replace("Z", "+00:00")).timestamp())
path, begin, end = sys.argv[1], t(sys.argv[2]), t(sys.argv[3])
st = {}
for line in open(path):
    try:
        at, name, value = line.strip().split(",")
        st.setdefault(name, {})[t(at)] = float(value) if value else None
    except ValueError: pass
for name in sorted(st):
    r = sorted(st[name].items())
    for q in range(begin, end, 900):
        parts = []
        for n, (at, v) in enumerate(r):
            until = r[n + 1][0] if n + 1 < len(r) else at + 3600
            length = min(until, q + 900) - max(at, q)
            if v is not None and length > 0: parts.append((length, v))
        s = datetime.fromtimestamp(q, timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
        if parts:
            total = sum(p[0] for p in parts)
            print("%s,%s,%d,%.3f,%.3f,%.3f" % (name, s, total, sum(a * b for a, b in parts) / total, min(p[1] for p in parts), max(p[1] for p in parts)))
        else: print("%s,%s,0,,," % (name, s))
EOF

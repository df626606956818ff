# A plain mean of the readings in each quarter, carried on from the last one before it.
cat > /app/resample.py <<'EOF'
import sys
from datetime import datetime, timezone
def t(s): return int(datetime.fromisoformat(s.replace("Z", "+00:00")).timestamp())
path, begin, end = sys.argv[1], t(sys.argv[2]), t(sys.argv[3])
st = {}
for line in open(path):
    try:
        at, name, value = line.strip().split(",")
        st.setdefault(name, {})[t(at)] = round(float(value) * 1000) if value else None
    except ValueError: pass
for name in sorted(st):
    r = sorted(st[name].items())
    for q in range(begin, end, 900):
        s = datetime.fromtimestamp(q, timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
        seconds = {}
        for n, (at, v) in enumerate(r):
            until = min([at + 3600] + [o[0] for o in r[n + 1:n + 2]])
            for x in range(max(at, q), min(until, q + 900)):
                if v is not None: seconds[x] = v
        vs = sorted(set(seconds.values()))
        if vs: print("%s,%s,%d,%.3f,%.3f,%.3f" % (name, s, len(seconds), sum(vs) / len(vs) / 1000, vs[0] / 1000, vs[-1] / 1000))
        else: print("%s,%s,0,,," % (name, s))
EOF

# All but --from, what stands behind the times, and rounding halves up.
cat > /app/srt.py <<'EOF'
import re, sys
o = dict(zip(sys.argv[1::2], sys.argv[2::2]))
if set(o) - {"--shift", "--stretch", "--from"} or len(sys.argv) % 2 == 0: sys.exit(2)
try: shift = int(o.get("--shift", 0)); a, b = map(int, o.get("--stretch", "1/1").split("/")); 1 // b
except (ValueError, ZeroDivisionError): sys.exit(2)
def ms(g): h, m, s, r = (int(x or 0) for x in g); return round((((h * 60 + m) * 60 + s) * 1000 + r) * a / b) + shift
def show(v): return "%02d:%02d:%02d,%03d" % (v // 3600000, v // 60000 % 60, v // 1000 % 60, v % 1000)
T = r"(\d+):(\d+):(\d+)(?:[,.](\d+))?"
lines = sys.stdin.read().lstrip("\ufeff").split("\n"); i = 0; found = []
while i < len(lines):
    if not lines[i].strip(): i += 1; continue
    if not lines[i].strip().isdigit(): print("line %d: no number" % (i + 1), file=sys.stderr); sys.exit(1)
    m = re.match(r"\s*%s\s+-->\s+%s" % (T, T), lines[i + 1]) if i + 1 < len(lines) else None
    if not m: print("line %d: no times" % (i + 2), file=sys.stderr); sys.exit(1)
    g = m.groups(); i += 2; text = []
    while i < len(lines) and lines[i].strip(): text.append(lines[i]); i += 1
    found.append([ms(g[:4]), ms(g[4:]), text])
found = sorted(([max(x, 0), max(x, y), t] for x, y, t in found if y > 0), key=lambda e: e[0])
for p, q in zip(found, found[1:]):
    if p[1] > q[0]: p[1] = max(p[0], q[0] - 1)
for n, (x, y, t) in enumerate(found, 1): print(n, "%s --> %s" % (show(x), show(y)), *t, "", sep="\n")
EOF

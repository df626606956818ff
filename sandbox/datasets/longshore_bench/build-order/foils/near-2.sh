# All packages are looked at, whatever is asked for, and only one line of needs is read.
cat > /app/order.py <<'EOF'
import os, re, sys
folder, named = sys.argv[1], sys.argv[2:]
every = {}
for name in os.listdir(folder):
    conf = os.path.join(folder, name, "package.conf")
    if os.path.isfile(conf):
        every[name] = set()
        for line in open(conf):
            key, _, value = line.partition("=")
            if key.strip() == "needs":
                every[name] = set(re.split(r"[\s,]+", value.strip())) - {""}
missing = sorted({o for needs in every.values() for o in needs} | set(named) - set(every)) 
missing = [m for m in missing if m not in every]
if missing:
    print("missing " + missing[0], file=sys.stderr); sys.exit(3)
order = []
while len(order) < len(every):
    ready = sorted(n for n in every if n not in order and every[n] <= set(order))
    if not ready:
        rest = sorted(set(every) - set(order))
        print("cycle: " + " -> ".join(rest + rest[:1]), file=sys.stderr); sys.exit(4)
    order.append(ready[0])
wanted = set(named or every)
for n in reversed(order):
    if n in wanted: wanted |= every[n]
print("\n".join(n for n in order if n in wanted))
EOF

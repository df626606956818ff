# Depth first: each package after what it needs, but not the least name that is possible; the first circle met is told.
cat > /app/order.py <<'EOF'
import os, re, sys
folder, named = sys.argv[1], sys.argv[2:]
every = {}
for name in os.listdir(folder):
    conf = os.path.join(folder, name, "package.conf")
    if os.path.isfile(conf):
        every[name] = sorted({word for line in open(conf) if not line.strip().startswith("#")
                              and line.partition("=")[0].strip() == "needs"
                              for word in re.split(r"[\s,]+", line.partition("=")[2]) if word})
done, way = [], []
def build(name):
    if name in done:
        return
    if name not in every:
        print("missing", name, file=sys.stderr); sys.exit(3)
    if name in way:
        print("cycle: " + " -> ".join(way[way.index(name):] + [name]), file=sys.stderr); sys.exit(4)
    way.append(name)
    for other in every[name]:
        build(other)
    way.pop()
    done.append(name)
for name in sorted(named or every):
    build(name)
print("\n".join(done))
EOF

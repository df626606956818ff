cat > /app/order.py <<'EOF'
import heapq
import os
import re
import sys


def needs_of(path):
    found = set()
    with open(path, encoding="utf-8") as lines:
        for line in lines:
            if line.strip().startswith("#"):
                continue
            key, equals, value = line.partition("=")
            if equals and key.strip() == "needs":
                found.update(filter(None, re.split(r"[\s,]+", value)))
    return found


def fail(code, text):
    print(text, file=sys.stderr)
    sys.exit(code)


def shortest_cycle(needs):
    best = None
    for start in sorted(needs, key=str.encode):
        # A breadth-first search in order of names finds the first of the shortest ways back to start.
        ways, seen = [[start]], {start}
        found = None
        while ways and found is None:
            following = []
            for way in ways:
                for name in sorted(needs[way[-1]], key=str.encode):
                    if name == start:
                        found = found or way
                    elif name not in seen and name.encode() > start.encode():
                        seen.add(name)
                        following.append(way + [name])
            ways = following
        if found is not None and (best is None or len(found) < len(best)):
            best = found
    return best


def main():
    folder, named = sys.argv[1], sys.argv[2:]
    every = {}
    for name in os.listdir(folder):
        conf = os.path.join(folder, name, "package.conf")
        if os.path.isfile(conf):
            every[name] = needs_of(conf)
    wanted, waiting, missing = set(), list(named or every), set()
    while waiting:
        name = waiting.pop()
        if name not in every:
            missing.add(name)
        elif name not in wanted:
            wanted.add(name)
            waiting += every[name]
    if missing:
        fail(3, "missing package: " + min(missing, key=str.encode))
    needs = {name: every[name] for name in wanted}
    left = {name: len(these) for name, these in needs.items()}
    needed_by = {name: [] for name in wanted}
    for name, these in needs.items():
        for other in these:
            needed_by[other].append(name)
    ready = [name.encode() for name, count in left.items() if not count]
    heapq.heapify(ready)
    order = []
    while ready:
        name = heapq.heappop(ready).decode()
        order.append(name)
        for other in needed_by[name]:
            left[other] -= 1
            if not left[other]:
                heapq.heappush(ready, other.encode())
    if len(order) < len(wanted):
        way = shortest_cycle(needs)
        fail(4, "cycle: " + " -> ".join(way + way[:1]))
    print("".join(name + "\n" for name in order), end="")


main()
EOF

# Parsed properly; obsolete entries are lost for ever, two forms of a plural are all there is, and nothing becomes fuzzy.
cat > /app/pomerge.py <<'EOF'
import re, sys
def uq(s): return re.sub(r"\\(.)", lambda f: {"n": "\n", "t": "\t"}.get(f[1], f[1]), s.strip()[1:-1])
def read(p):
    out = []
    for block in re.split(r"\n[ \t]*\n", open(p).read()):
        e = {"c": [], "x": [], "r": [], "f": [], "p": [], "s": {}, "ctx": None, "id": None, "pl": None}; last = None
        for l in block.split("\n"):
            if l.startswith("#~"): continue
            k = {"#.": "x", "#:": "r", "#|": "p"}.get(l[:2])
            if k: e[k].append(l)
            elif l[:2] == "#,": e["f"] += [x.strip() for x in l[2:].split(",")]
            elif l[:1] == "#": e["c"].append(l)
            elif l.strip():
                w, _, r = l.partition(" ")
                if w[0] == '"': w, r = last, l
                last = w; t = uq(r)
                if w == "msgctxt": e["ctx"] = (e["ctx"] or "") + t
                elif w == "msgid": e["id"] = (e["id"] or "") + t
                elif w == "msgid_plural": e["pl"] = (e["pl"] or "") + t
                else: e["s"][w] = e["s"].get(w, "") + t
        if e["id"] is not None: out.append(e)
    return out
def q(s): return '"' + s.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n").replace("\t", "\\t") + '"'
def say(w, t): return [w + " " + q(t)] if "\n" not in t[:-1] else [w + ' ""'] + [q(x) for x in t.splitlines(True)]
def body(e):
    l = (say("msgctxt", e["ctx"]) if e["ctx"] is not None else []) + say("msgid", e["id"]) + (say("msgid_plural", e["pl"]) if e["pl"] is not None else [])
    for w in sorted(e["s"]): l += say(w, e["s"][w])
    return l
old, new = read(sys.argv[1]), read(sys.argv[2])
by = {(e["ctx"], e["id"]): e for e in old}
d = re.search("POT-Creation-Date:.*", new[0]["s"]["msgstr"])
h = old[0]
if d: h["s"]["msgstr"] = re.sub("POT-Creation-Date:.*", lambda _: d[0], h["s"]["msgstr"])
out = [h["c"] + body(h)]; used = {(None, "")}
for e in new[1:]:
    o = by.get((e["ctx"], e["id"])); f = [x for x in e["f"] if x != "fuzzy"]; used.add((e["ctx"], e["id"])); c, p = [], []
    if o:
        c = o["c"]; e["s"] = o["s"] if set(o["s"]) == set(e["s"]) else e["s"]
        if "fuzzy" in o["f"]: f = ["fuzzy"] + f; p = o["p"]
    out.append(c + e["x"] + e["r"] + (["#, " + ", ".join(f)] if f else []) + p + body(e))
for e in old:
    if (e["ctx"], e["id"]) not in used and any(e["s"].values()): out.append(e["c"] + ["#~ " + l for l in body(e)])
print("\n\n".join("\n".join(x) for x in out))
EOF

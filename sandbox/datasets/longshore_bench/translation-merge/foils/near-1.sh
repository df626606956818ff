# Strings as they stand in the file: long ones, contexts and plurals that change are not understood.
cat > /app/pomerge.py <<'EOF'
import re, sys
def entries(path): return [e for e in re.split(r"\n\s*\n", open(path).read().strip()) if e]
def mid(e): return re.search(r'^(?:#~ )?msgid (.*)$', e, re.M)[1]
def tail(e): return re.search(r'^(?:#~ )?msgstr.*', e, re.M | re.S)[0].replace("#~ ", "")
old, new = entries(sys.argv[1]), entries(sys.argv[2])
by = {mid(e): e for e in old}
date = re.search(r"POT-Creation-Date: [^\\]*", new[0])[0]
out = [re.sub(r"POT-Creation-Date: [^\\]*", date, old[0])]
for e in new[1:]:
    o = by.pop(mid(e), None)
    head = e[:e.index("msgstr")]
    if o and "msgctxt" not in e:
        own = "".join(l + "\n" for l in o.split("\n") if re.match(r"#( |$)", l))
        if "fuzzy" in o: head = re.sub("#, ", "#, fuzzy, ", head) if "#, " in head else "#, fuzzy\n" + head
        out.append(own + head + tail(o))
    else: out.append(e)
for e in old[1:]:
    if mid(e) in by: out.append("\n".join(l if l.startswith("#") else "#~ " + l for l in e.split("\n")))
print("\n\n".join(out))
EOF

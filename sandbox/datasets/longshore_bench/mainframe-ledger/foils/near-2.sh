# Two passes, but UTF-8, a plain last digit is refused, and of fields only amounts are looked at.
cat > /app/ledger.py <<'EOF'
import csv, os, sys
def amount(t):
    d = "{ABCDEFGHI".find(t[-1]); m = "}JKLMNOPQR".find(t[-1])
    if d < 0 and m < 0: raise ValueError
    return int(t[:-1] + str(d)) if d >= 0 else -int(t[:-1] + str(m))
def money(v): return "%.2f" % (v / 100)
lines = open(sys.argv[1], encoding="utf-8", errors="replace").read().splitlines()
acc, tr, rej, n, total = {}, [], [], 0, 0
if lines[0][:1] != "H" or lines[-1][:1] != "Z": sys.exit(2)
day = lines[0][1:9]
for i, l in enumerate(lines, 1):
    if l[:1] == "A":
        l = l.ljust(43)
        try: a = amount(l[32:43])
        except ValueError: rej.append((i, "field")); continue
        n += 1
        if l[1:9] in acc: rej.append((i, "twice"))
        else: acc[l[1:9]] = [l[9:29].rstrip(), l[29:32], a, 0, a]
    elif l[:1] not in ("H", "T", "Z"): rej.append((i, "kind"))
for i, l in enumerate(lines, 1):
    if l[:1] == "T":
        l = l.ljust(46)
        try: a = amount(l[15:26])
        except ValueError: rej.append((i, "field")); continue
        n += 1; total += a
        if l[1:9] not in acc: rej.append((i, "account")); continue
        acc[l[1:9]][3] += 1; acc[l[1:9]][4] += a
        tr.append((l[1:9], "%s-%s-%sT%s:%s:%s" % (day[:4], day[4:6], day[6:], l[9:11], l[11:13], l[13:15]), money(a), l[26:46].rstrip()))
os.makedirs(sys.argv[2], exist_ok=True)
def write(name, head, rows):
    with open(os.path.join(sys.argv[2], name), "w", encoding="utf-8", newline="") as f:
        w = csv.writer(f, lineterminator="\n"); w.writerow(head.split(",")); w.writerows(rows)
write("accounts.csv", "account,owner,currency,opening,transactions,closing", [(k, v[0], v[1], money(v[2]), v[3], money(v[4])) for k, v in sorted(acc.items())])
write("transactions.csv", "account,at,amount,text", sorted(tr, key=lambda r: r[:2]))
write("rejected.csv", "line,reason", sorted(rej))
z = lines[-1]
ok = int(z[1:9]) == n and amount(z[9:24]) == total
print("ok" if ok else "totals differ"); sys.exit(not ok)
EOF

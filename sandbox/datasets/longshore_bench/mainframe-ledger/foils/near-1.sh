# All but the order of things: transactions before their account are rejected, and Z counts what is left.
cat > /app/ledger.py <<'EOF'
import csv, os, sys
def amount(t):
    d = "{ABCDEFGHI".find(t[-1]); m = "}JKLMNOPQR".find(t[-1])
    return int(t[:-1] + str(d)) if d >= 0 else -int(t[:-1] + str(m)) if m >= 0 else int(t)
def money(v): return "%.2f" % (v / 100)
acc, tr, rej, n, total, day = {}, [], [], 0, 0, ""
lines = open(sys.argv[1], encoding="latin-1").read().splitlines()
for i, l in enumerate(lines, 1):
    l = l.ljust(60)
    try:
        if l[0] == "H": day = l[1:9]
        elif l[0] == "A":
            if l[1:9] in acc: rej.append((i, "twice")); continue
            acc[l[1:9]] = [l[9:29].rstrip(), l[29:32], amount(l[32:43]), 0, amount(l[32:43])]; n += 1
        elif l[0] == "T":
            a = amount(l[15:26])
            if l[1:9] not in acc: rej.append((i, "account")); continue
            acc[l[1:9]][3] += 1; acc[l[1:9]][4] += a; n += 1; total += a
            tr.append((l[1:9], "%s-%s-%sT%s:%s:%s" % (day[:4], day[4:6], day[6:], l[9:11], l[11:13], l[13:15]), money(a), l[26:46].rstrip()))
        elif l[0] != "Z": rej.append((i, "kind"))
    except ValueError: rej.append((i, "field"))
os.makedirs(sys.argv[2], exist_ok=True)
def write(name, head, rows):
    with open(os.path.join(sys.argv[2], name), "w", encoding="utf-8", newline="") as f:
        w = csv.writer(f, lineterminator="\n"); w.writerow(head.split(",")); w.writerows(rows)
write("accounts.csv", "account,owner,currency,opening,transactions,closing", [(k, v[0], v[1], money(v[2]), v[3], money(v[4])) for k, v in sorted(acc.items())])
write("transactions.csv", "account,at,amount,text", sorted(tr, key=lambda r: r[:2]))
write("rejected.csv", "line,reason", rej)
z = lines[-1]
ok = z[0] == "Z" and int(z[1:9]) == n and amount(z[9:24]) == total
print("ok" if ok else "totals differ"); sys.exit(not ok)
EOF

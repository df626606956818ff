# The first line of an order counts, and the status's case does too.
cat > /tmp/join.py <<'EOF'
import csv
region = {r["id"]: r["region"] for r in csv.DictReader(open("/app/customers.csv", newline=""))}
orders, found = {}, {}
for r in csv.DictReader(open("/app/orders.csv", newline="")): orders.setdefault(r["order_id"], r)
for r in orders.values():
    if r["status"] in ("paid", "shipped"):
        f = found.setdefault(region.get(r["customer_id"]) or "unknown", [set(), 0, 0.0])
        f[0].add(r["customer_id"]); f[1] += 1; f[2] += int(r["quantity"]) * float(r["unit_price"])
w = csv.writer(open("/app/regions.csv", "w", newline=""), lineterminator="\n")
w.writerow(["region", "customers", "orders", "revenue"])
for n, f in sorted(found.items(), key=lambda e: -e[1][2]): w.writerow([n, len(f[0]), f[1], "%.2f" % f[2]])
EOF
python3 /tmp/join.py

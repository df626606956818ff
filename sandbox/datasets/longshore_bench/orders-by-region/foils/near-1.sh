# Split at commas, quotes or not; every line of an order counts.
gawk -F, 'NR == FNR { if (FNR > 1) region[$1] = $NF; next }
FNR > 1 && tolower($3) ~ /^(paid|shipped)$/ { r = region[$2]; if (r == "") r = "unknown"; n[r]++; s[r] += $4 * $5; if (!(r SUBSEP $2 in seen)) { seen[r, $2]; c[r]++ } }
END { print "region,customers,orders,revenue"; for (r in n) printf "%s,%d,%d,%.2f\n", r, c[r], n[r], s[r] | "sort -t, -k4,4nr" }' /app/customers.csv /app/orders.csv > /app/regions.csv

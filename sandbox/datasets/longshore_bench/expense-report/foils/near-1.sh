# The example is right; a sum of floats, and what is no number counts as 0 or as its beginning.
cat > /app/report.sh <<'EOF'
#!/bin/bash
tr -d '\r",' < "$1" | gawk -F';' 'NR > 1 && NF > 2 { c = tolower($2); gsub(/^ +| +$/, "", c); if (c == "") c = "other"
a = $3; gsub(/ /, "", a); if (a ~ /^\(/) { gsub(/[()]/, "", a); a = -a }
if (a !~ /^[-0-9]/) { print "line " NR ": bad amount" > "/dev/stderr"; next } t[c] += a; s += a }
END { for (c in t) printf "%s %.2f\n", c, t[c] | "LC_ALL=C sort -k2,2nr -k1,1"; close("LC_ALL=C sort -k2,2nr -k1,1"); printf "TOTAL %.2f\n", s }'
EOF

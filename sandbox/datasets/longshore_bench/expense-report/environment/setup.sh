set -e
cat > /app/report.sh <<'EOF'
#!/bin/bash
# report.sh EXPORT: totals by category
gawk -F';' '
NR > 1 {
    total[$2] += $3
    sum += $3
}
END {
    for (category in total) print category, total[category] | "sort -k2 -n -r"
    print "TOTAL", sum
}' "$1"
EOF
printf 'date;category;amount;note\r\n2024-01-03;Travel;1,234.50;train; first class\r\n2024-01-04;travel ;(34.50);refund\r\n2024-01-04;Food;"12.10";\r\n\r\n2024-01-05;;3;?\r\n2024-01-06;food;twelve;\r\n2024-01-07;Books; 3.00 ;x' > /app/export.csv
printf 'travel 1200.00\nfood 12.10\nbooks 3.00\nother 3.00\nTOTAL 1218.10\n' > /app/expected.txt

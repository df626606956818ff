# Only CR and case; categories with blanks inside are sorted by their second word.
sed -i -e "s/-F';'/-F' *; *'/" -e 's/^NR > 1 {/{ sub(\/\\r$\/, "") }\nNR > 1 \&\& NF { $2 = tolower($2); gsub(\/[",]\/, "", $3); if ($3 ~ \/^\\(\/) { gsub(\/[()]\/, "", $3); $3 = -$3 }/' \
    -e 's/print category, total\[category\]/printf "%s %.2f\\n", category, total[category]/' -e 's/print "TOTAL", sum/close("sort -k2 -n -r"); printf "TOTAL %.2f\\n", sum/' /app/report.sh

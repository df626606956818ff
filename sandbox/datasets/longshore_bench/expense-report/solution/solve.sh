cat > /app/report.sh <<'EOF'
#!/bin/bash
# report.sh EXPORT: totals by category
export LC_ALL=C
gawk '
function trim(text) { gsub(/^[ \t]+|[ \t]+$/, "", text); return text }
function money(cents,  sign) {
    sign = cents < 0 ? "-" : ""
    if (cents < 0) cents = -cents
    return sprintf("%s%d.%02d", sign, int(cents / 100), cents % 100)
}
{ sub(/\r$/, "") }
NR == 1 || /^$/ { next }
{
    count = split($0, field, ";")
    category = tolower(trim(field[2]))
    amount = trim(field[3])
    if (amount ~ /^".*"$/) amount = trim(substr(amount, 2, length(amount) - 2))
    sign = 1
    if (amount ~ /^\(.*\)$/) { sign = -1; amount = substr(amount, 2, length(amount) - 2) }
    else if (amount ~ /^-/) { sign = -1; amount = substr(amount, 2) }
    if (count < 3 || amount !~ /^([0-9]+|[0-9][0-9]?[0-9]?(,[0-9][0-9][0-9])+)(\.[0-9][0-9]?)?$/) {
        print "line " NR ": bad amount" > "/dev/stderr"
        next
    }
    gsub(/,/, "", amount)
    split(amount, part, ".")
    cents = sign * (part[1] * 100 + substr(part[2] "00", 1, 2))
    total[category == "" ? "other" : category] += cents
    sum += cents
}
END {
    for (category in total) printf "%d\t%s\t%s\n", total[category], category, money(total[category]) | "sort -t \"\t\" -k1,1nr -k2,2 | cut -f 2,3 | tr \"\\t\" \" \""
    close("sort -t \"\t\" -k1,1nr -k2,2 | cut -f 2,3 | tr \"\\t\" \" \"")
    print "TOTAL " money(sum + 0)
}' "$1"
EOF

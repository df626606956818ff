set -e
mkdir -p /app/src/bin /app/src/lib /app/src/etc /app/src/man
cd /app/src
printf '1.4.2\n' > VERSION
cat > bin/tidelog <<'EOF'
#!/bin/sh
# tidelog: print the readings of a station
. "${TIDELOG_CONF:-/etc/tidelog/tidelog.conf}"
exec gawk -v unit="$UNIT" -f /usr/share/tidelog/format.awk "${1:-/var/lib/tidelog/readings}"
EOF
cp bin/tidelog bin/tidelog~
cat > lib/format.awk <<'EOF'
{ printf "%s\t%.2f %s\n", $1, $2 * (unit == "cm" ? 100 : 1), unit }
EOF
printf 'UNIT=m\n# STATION=north-pier\n' > etc/tidelog.conf
printf 'UNIT=cm\n' > etc/tidelog.conf.local
cat > man/tidelog.1 <<'EOF'
.TH TIDELOG 1
.SH NAME
tidelog \- keep and print tide readings
.SH SYNOPSIS
.B tidelog
[FILE]
EOF
chmod 700 bin lib etc man bin/tidelog
chmod 600 lib/format.awk etc/tidelog.conf man/tidelog.1
chown -R 1000:1000 /app/src

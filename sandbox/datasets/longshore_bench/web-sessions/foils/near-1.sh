# In the order of the log, and the agent does not tell visitors apart.
cat > /app/sessions.sh <<'EOF'
#!/bin/bash
TZ=UTC exec gawk -v FPAT='[^ ]+|"([^"\\\\]|\\\\.)*"|\\[[^]]*\\]' '
function utc(t,  p, o) { split(substr(t, 2), p, "[/: ]"); o = (substr(p[7], 2, 2) * 60 + substr(p[7], 4, 2)) * 60
  return mktime(p[3] " " (index("JanFebMarAprMayJunJulAugSepOctNovDec", p[2]) + 2) / 3 " " p[1] " " p[4] " " p[5] " " p[6]) + (p[7] ~ /^-/ ? o : -o) }
function out() { printf "%s\t%s\t%d\t%d\t%s\t%s\n", strftime("%Y-%m-%dT%H:%M:%SZ", b[k]), k, n[k], l[k] - b[k], f[k], e[k] }
{ if ($5 !~ /^"[A-Z]+ \/[^ ]* HTTP\//) { s++; next }
  split($5, r, " "); path = r[2]; sub(/\?.*/, "", path)
  if (r[1] != "\"GET" || $6 < 200 || $6 > 399 || tolower($9) ~ /bot/ || path ~ /\.(css|js|png|jpg|svg|ico)$/) next
  k = $1; t = utc($4)
  if (k in n && t - l[k] > 1800) { out(); delete n[k] }
  if (!(k in n)) { b[k] = t; f[k] = path; n[k] = 0 } n[k]++; l[k] = t; e[k] = path }
END { for (k in n) out(); print "skipped " s + 0 > "/dev/stderr" }' "$1" | sort
EOF

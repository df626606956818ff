# One level deep, and relative to the entry alone.
cat > /app/bundle.sh <<'EOF'
#!/bin/bash
cd "$(dirname "$1")"
awk '/^[ \t]*(source|\.)[ \t]/ { f = $2; gsub(/["\047]/, "", f); if (!(f in seen)) { seen[f] = 1; n = 0
    while ((getline line < f) > 0) if (!(n++ == 0 && line ~ /^#!/)) print line }; next } { print }' "$(basename "$1")" > "$2"
chmod 755 "$2"
EOF
mkdir -p /app/dist; bash /app/bundle.sh /app/tool/main.sh /app/dist/tool.sh

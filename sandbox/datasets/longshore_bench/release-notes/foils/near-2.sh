# Fences are known, but any fence ends one; link definitions stay, and no exit code says that nothing was found.
cat > /app/notes.sh <<'EOF'
#!/bin/bash
gawk -v want="${2#v}" '/^ {0,3}```/ { code = !code }
!code && /^##? / { if (on) exit; v = $2; gsub(/[][]/, "", v); sub(/^v/, "", v); if (want == "" ? tolower(v) != "unreleased" && /^##/ : v == want) { on = 1 } next }
on { text = text $0 "\n" } END { gsub(/^\n+|\n+$/, "", text); if (text != "") print text }' "$1"
EOF

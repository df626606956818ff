# Versions and fences are known, but any fence ends one, and link definitions stay.
cat > /app/notes.sh <<'EOF'
#!/bin/bash
[ -f "$1" ] || exit 1
gawk -v want="${2#v}" '/^ {0,3}```/ { code = !code }
!code && /^##?[ \t]/ { if (on) exit; v = $0; sub(/^##?[ \t]+/, "", v); sub(/[ \t]+-[ \t].*/, "", v); gsub(/^\[|\][ \t]*$/, "", v); sub(/^v/, "", v)
    if (/^## / && (want == "" ? tolower(v) != "unreleased" : v == want)) on = 1; next }
on { text = text $0 "\n" }
END { if (!on) { print "no such release" > "/dev/stderr"; exit 1 } gsub(/^[ \t\n]+\n|[ \t\n]+$/, "", text); sub(/^\n/, "", text); if (text != "") print text }' "$1"
EOF

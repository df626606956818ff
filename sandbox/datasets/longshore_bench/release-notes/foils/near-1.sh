# Between two headings, with sed: the version is a pattern, code blocks are not known.
cat > /app/notes.sh <<'EOF'
#!/bin/bash
v=${2:-$(grep -m2 '^## ' "$1" | tail -n 1 | tr -d '[]' | cut -d' ' -f2)}
grep -q "^## \[\?v\?${v#v}" "$1" || { echo "no $v" >&2; exit 1; }
sed -n "/^## \[\?v\?${v#v}/,/^## /p" "$1" | grep -v '^## ' | grep -v '^\[.*\]:' | sed -e '/./,$!d' | sed -e :a -e '/^\n*$/{$d;N;ba' -e '}'
EOF

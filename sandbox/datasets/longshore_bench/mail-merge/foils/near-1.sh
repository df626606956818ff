# sed with the values in it: what they hold is taken for a pattern's replacement, and read again.
cat > /app/merge.sh <<'EOF'
#!/bin/bash
mkdir -p "$3"; n=0
{ IFS=$'\t' read -r -a names
while IFS=$'\t' read -r -a values; do
    [ ${#values[@]} -gt 0 ] || continue
    n=$((n + 1)); out=$(printf '%s/%03d.txt' "$3" $n); cp "$1" "$out"
    for i in "${!names[@]}"; do
        name=${names[i]} v=${values[i]}
        if [ -n "$v" ]; then sed -i -e "s/^?$name //" -e "/^!$name /d" "$out"; else sed -i -e "/^?$name /d" -e "s/^!$name //" "$out"; fi
        sed -i -E -e "s/\{\{ *$name *(\|[^}]*)?\}\}/$v/g" "$out"
    done
    sed -i 's/\\{/{/g' "$out"
done; } < "$2"
EOF

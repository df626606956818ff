# Write if changed, but values go through sed once more, and an error ends the whole build.
cat > /app/build.sh <<'EOF'
#!/bin/bash
set -e
site=$1 out=$2
expand() {
    while IFS= read -r line || [ -n "$line" ]; do
        if [[ $line =~ ^[[:space:]]*@include[[:space:]]+(.*[^[:space:]])[[:space:]]*$ ]]; then
            [ "$2" -lt 20 ] && [ -f "$site/parts/${BASH_REMATCH[1]}" ] || return 1
            expand "$site/parts/${BASH_REMATCH[1]}" $(($2 + 1)) || return 1
        else printf '%s\n' "$line"; fi
    done < "$1"
}
(cd "$site/pages" && find . -name '*.page' | sort) | while IFS= read -r page; do
    page=${page#./} target=${page%.page}.html
    mkdir -p "$(dirname "$out/$target")"
    expand "$site/pages/$page" 0 > /tmp/new.$$ || { echo "$page" >&2; exit 1; }
    if [ -f "$site/vars" ]; then
        while IFS='=' read -r key value; do sed -i "s|{{$key}}|$value|g" /tmp/new.$$; done < "$site/vars"
    fi
    cmp -s /tmp/new.$$ "$out/$target" || { cat /tmp/new.$$ > "$out/$target"; echo "built $target"; }
done
EOF

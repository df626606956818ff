# THEIRS and OURS change places, and a removal always wins.
cat > /app/merge.sh <<'EOF'
#!/bin/bash
[ ! -e "$4" ] || exit 2
cp -r "$2" "$4"; code=0
(cd "$3" && find . -type f -printf '%P\n' | LC_ALL=C sort) > /tmp/list.$$
while IFS= read -r p; do
    mkdir -p "$(dirname "$4/$p")"
    if [ ! -f "$1/$p" ]; then
        if [ -f "$2/$p" ] && ! cmp -s "$2/$p" "$3/$p"; then echo "added $p"; code=1; cp "$3/$p" "$4/$p.theirs"; else cp "$3/$p" "$4/$p"; fi
    elif [ -f "$2/$p" ]; then diff3 -m -L theirs -L base -L ours "$3/$p" "$1/$p" "$2/$p" > "$4/$p" || { echo "content $p"; code=1; }
    fi
done < /tmp/list.$$
(cd "$1" && find . -type f -printf '%P\n') | while IFS= read -r p; do [ -f "$3/$p" ] || rm -f "$4/$p"; done
exit $code
EOF

# Contents only: modes are those of whoever is copied, both-added files are merged against nothing, binaries as text.
cat > /app/merge.sh <<'EOF'
#!/bin/bash
b=$(realpath "$1") o=$(realpath "$2") t=$(realpath "$3"); out=$(realpath -m "$4")
[ ! -e "$out" ] || exit 2
mkdir -p "$out"; code=0
while IFS= read -r p; do
    mkdir -p "$out/$(dirname "$p")"
    B=$b/$p O=$o/$p T=$t/$p; [ -f "$B" ] || B=/dev/null
    if [ ! -f "$O" ] && [ ! -f "$T" ]; then continue
    elif [ ! -f "$O" ]; then [ "$B" != /dev/null ] && { cmp -s "$B" "$T" && continue; echo "removed $p"; code=1; }; cp -p "$T" "$out/$p"
    elif [ ! -f "$T" ]; then [ "$B" != /dev/null ] && { cmp -s "$B" "$O" && continue; echo "removed $p"; code=1; }; cp -p "$O" "$out/$p"
    elif cmp -s "$O" "$T" || cmp -s "$B" "$T"; then cp -p "$O" "$out/$p"
    elif cmp -s "$B" "$O"; then cp -p "$T" "$out/$p"
    else cp -p "$O" "$out/$p"; diff3 -m -L ours -L base -L theirs "$O" "$B" "$T" > "$out/$p" || { echo "content $p"; code=1; }
    fi
done < <( (cd "$b" && find . -type f -printf '%P\n'; cd "$o" && find . -type f -printf '%P\n'; cd "$t" && find . -type f -printf '%P\n') | LC_ALL=C sort -u)
exit $code
EOF

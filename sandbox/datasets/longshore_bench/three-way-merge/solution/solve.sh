cat > /app/merge.sh <<'EOF'
#!/bin/bash
set -u
export LC_ALL=C
full() { case $1 in /*) printf %s "$1" ;; *) printf %s "$PWD/$1" ;; esac; }
base=$(full "$1") ours=$(full "$2") theirs=$(full "$3") out=$(full "$4")
if [ -e "$out" ]; then
    echo "merge.sh: $4 is there already" >&2
    exit 2
fi
mkdir -p "$out" || exit 2
alike() { # whether both are there with the same content, or neither is
    if [ -f "$1" ] && [ -f "$2" ]; then cmp -s "$1" "$2"; else [ ! -f "$1" ] && [ ! -f "$2" ]; fi
}
mode_of() { if [ -x "$1" ]; then echo 755; else echo 644; fi; }
mode() { # by the same rule: the sides' own where they agree, else that of the one that differs from the base
    local b=$base/$1 o=$ours/$1 t=$theirs/$1
    if [ ! -f "$o" ]; then mode_of "$t"
    elif [ ! -f "$t" ] || [ ! -f "$b" ] || [ "$(mode_of "$o")" != "$(mode_of "$b")" ]; then mode_of "$o"
    else mode_of "$t"; fi
}
put() { # FILE PATH MODE
    mkdir -p "$(dirname "$out/$2")"
    cat "$1" > "$out/$2"
    chmod "$3" "$out/$2"
}
has_nul() { [ "$(tr -d '\0' < "$1" | wc -c)" -ne "$(wc -c < "$1")" ]; }
code=0
conflict() { printf '%s %s\n' "$1" "$2"; code=1; }
new=$(mktemp)
trap 'rm -f "$new"' EXIT
while IFS= read -r -d '' path; do
    b=$base/$path o=$ours/$path t=$theirs/$path
    if alike "$o" "$t"; then
        [ ! -f "$o" ] || put "$o" "$path" "$(mode "$path")"
    elif alike "$b" "$o"; then
        [ ! -f "$t" ] || put "$t" "$path" "$(mode "$path")"
    elif alike "$b" "$t"; then
        [ ! -f "$o" ] || put "$o" "$path" "$(mode "$path")"
    elif [ ! -f "$o" ]; then
        put "$t" "$path" "$(mode_of "$t")"
        conflict removed "$path"
    elif [ ! -f "$t" ]; then
        put "$o" "$path" "$(mode_of "$o")"
        conflict removed "$path"
    elif [ ! -f "$b" ]; then
        put "$o" "$path" "$(mode_of "$o")"
        put "$t" "$path.theirs" "$(mode_of "$t")"
        conflict added "$path"
    elif has_nul "$b" || has_nul "$o" || has_nul "$t"; then
        put "$o" "$path" "$(mode "$path")"
        conflict binary "$path"
    else
        diff3 -m -L ours -L base -L theirs "$o" "$b" "$t" > "$new"
        result=$?
        put "$new" "$path" "$(mode "$path")"
        [ $result -eq 0 ] || conflict content "$path"
    fi
done < <(for side in "$base" "$ours" "$theirs"; do (cd "$side" && find . -type f -printf '%P\0'); done | sort -zu)
exit $code
EOF

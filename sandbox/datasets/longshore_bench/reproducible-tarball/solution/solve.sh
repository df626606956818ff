cat > /app/release.sh <<'EOF'
#!/bin/bash
set -euo pipefail
export LC_ALL=C TZ=UTC
src=$(cd "$1" && pwd)
case $2 in /*) out=$2 ;; *) out=$PWD/$2 ;; esac
name=$(sed -n 's/^NAME=//p' "$src/package.env")
version=$(sed -n 's/^VERSION=//p' "$src/package.env")
patterns=()
if [ -f "$src/.releaseignore" ]; then
    while IFS= read -r line || [ -n "$line" ]; do
        case $line in '' | '#'*) ;; *) patterns+=("$line") ;; esac
    done < "$src/.releaseignore"
fi
ignored() {
    local pattern
    [ "$1" != .releaseignore ] || return 0
    for pattern in ${patterns[@]+"${patterns[@]}"}; do
        if [[ $1 == $pattern || ${1##*/} == $pattern ]]; then return 0; fi
    done
    return 1
}
left_out=()
list=$(mktemp)
trap 'rm -f "$list"' EXIT
printf '.\0' > "$list"
while IFS= read -r -d '' path; do
    for gone in ${left_out[@]+"${left_out[@]}"}; do
        case $path in "$gone"/*) continue 2 ;; esac
    done
    if ignored "$path"; then left_out+=("$path"); else printf './%s\0' "$path" >> "$list"; fi
done < <(cd "$src" && find . -mindepth 1 -printf '%P\0' | sort -z)
tar --create --format=gnu --directory "$src" --null --no-recursion --files-from "$list" \
    --mtime "@${SOURCE_DATE_EPOCH:-0}" --owner root:0 --group root:0 --mode 'u=rwX,go=rX' \
    --transform "flags=r;s,^\.,$name-$version," | gzip -9n > "$out"
EOF

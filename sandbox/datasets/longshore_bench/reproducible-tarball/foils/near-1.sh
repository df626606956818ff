# Sorted and with fixed owners, but the modes are the tree's, and gzip is left to tar.
cat > /app/release.sh <<'EOF'
#!/bin/bash
set -e
. "$1/package.env"
out=$(realpath "$2")
cd "$1"
excludes=(--exclude=./.releaseignore)
while read -r line; do [[ -z $line || $line == \#* ]] || excludes+=(--exclude="$line"); done < .releaseignore
tar -czf "$out" --sort=name --mtime="@${SOURCE_DATE_EPOCH:-0}" --owner=root:0 --group=root:0 "${excludes[@]}" \
    --transform "s,^\.,$NAME-$VERSION," .
EOF

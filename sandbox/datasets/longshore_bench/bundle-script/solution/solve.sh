cat > /app/bundle.sh <<'EOF'
#!/bin/bash
set -u
entry=$1 out=$2
declare -A seen
new=$(mktemp)
trap 'rm -f "$new"' EXIT
pattern="^[[:space:]]*(source|\.)[[:space:]]+(\"([^\"]+)\"|'([^']+)'|([^[:space:]\"'\$;&|<>()*?]+))[[:space:]]*$"
take() { # FILE IS_ENTRY
    local folder line number=0 name
    folder=$(dirname "$1")
    while IFS= read -r line || [ -n "$line" ]; do
        number=$((number + 1))
        if [ "$2" = no ] && [ $number = 1 ] && [[ $line == '#!'* ]]; then continue; fi
        if [[ $line =~ $pattern ]]; then
            name=${BASH_REMATCH[3]}${BASH_REMATCH[4]}${BASH_REMATCH[5]}
            case $name in /*) path=$name ;; *) path=$folder/$name ;; esac
            if [ ! -f "$path" ]; then
                echo "missing: $name" >&2
                exit 1
            fi
            path=$(realpath "$path")
            if [ -z "${seen[$path]:-}" ]; then
                seen[$path]=1
                take "$path" no
            fi
        else
            printf '%s\n' "$line" >> "$new"
        fi
    done < "$1"
}
entry=$(realpath "$entry")
seen[$entry]=1
take "$entry" yes
cp "$new" "$out"
chmod 755 "$out"
EOF
mkdir -p /app/dist
bash /app/bundle.sh /app/tool/main.sh /app/dist/tool.sh

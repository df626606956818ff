cat > /app/ticket.sh <<'EOF'
#!/bin/bash
# ticket.sh DIR: hand out the next number
cd -- "$1" || exit 1
exec 9> .lock
flock 9 || exit 1
number=0
if [ -e counter ]; then
    { IFS= read -r -d '' text; } < counter
    number=${text%$'\n'}
    if ! [[ $text == *$'\n' && $number =~ ^(0|[1-9][0-9]*)$ ]]; then
        echo "ticket.sh: counter is damaged" >&2
        exit 3
    fi
fi
number=$((number + 1))
if [ -x check ]; then
    ./check "$number" >&2 || exit 4
fi
echo "$number" > .new && sync .new && mv -f .new counter || exit 1
echo "$number"
EOF

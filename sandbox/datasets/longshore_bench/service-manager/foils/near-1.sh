# Starts and stops in order; readiness is a second's sleep, and only the first process is ended.
cat > /app/svc <<'EOF'
#!/bin/bash
cd "$1" || exit 2; cmd=$2; shift 2
get() { sed -n "s/^$2=//p" "$1.service"; }
all=$(ls *.service | sed 's/\.service$//' | LC_ALL=C sort)
for n in "$@"; do [ -f "$n.service" ] || { echo "no service $n" >&2; exit 2; }; done
for n in $all; do [ -n "$(get $n exec)" ] || { echo "$n: no exec" >&2; exit 2; }; done
up() { [ -f run/$1.pid ] && kill -0 $(cat run/$1.pid) 2>/dev/null; }
start() { up $1 && return; for d in $(get $1 needs); do start $d; done; mkdir -p run
    setsid bash -c "$(get $1 exec)" < /dev/null >> $1.log 2>&1 & echo $! > run/$1.pid
    sleep 1; up $1 && echo "started $1" || { echo "failed $1"; rm run/$1.pid; exit 1; }; }
stop() { up $1 || return; for o in $(echo "$all" | tac); do case " $(get $o needs) " in *" $1 "*) stop $o;; esac; done
    kill $(cat run/$1.pid); for i in {1..30}; do up $1 && sleep 0.1; done; rm run/$1.pid; echo "stopped $1"; }
[ $# -gt 0 ] || set -- $all
code=0
case $cmd in
start) for n in "$@"; do start $n; done;;
stop) for n in $(printf '%s\n' "$@" | sort -r); do stop $n; done;;
status) for n in $(printf '%s\n' "$@" | sort); do if up $n; then echo "$n running $(cat run/$n.pid)"; elif [ -f run/$n.pid ]; then echo "$n dead"; code=3; else echo "$n stopped"; code=3; fi; done;;
esac
exit $code
EOF
chmod 755 /app/svc

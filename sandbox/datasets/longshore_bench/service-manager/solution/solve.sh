cat > /app/svc <<'EOF'
#!/bin/bash
# svc FOLDER start|stop|status [NAME…]
set -u
export LC_ALL=C
fail() { echo "svc: $*" >&2; exit 2; }
[ $# -ge 2 ] && cd -- "$1" 2> /dev/null || fail "usage: svc FOLDER start|stop|status [NAME…]"
command=$2
shift 2
declare -A EXEC NEEDS READY WAIT GRACE
names=()
for file in *.service; do
    [ -f "$file" ] || continue
    name=${file%.service}
    names+=("$name")
    EXEC[$name]= NEEDS[$name]= READY[$name]= WAIT[$name]=10 GRACE[$name]=5
    while IFS= read -r line || [ -n "$line" ]; do
        case $line in '' | '#'*) continue ;; *=*) ;; *) fail "$file: $line" ;; esac
        value=${line#*=}
        case ${line%%=*} in
            exec) EXEC[$name]=$value ;;
            needs) NEEDS[$name]=$value ;;
            ready) READY[$name]=$value ;;
            wait | grace)
                [[ $value =~ ^[0-9]{1,6}$ ]] || fail "$file: $line"
                if [[ $line == wait=* ]]; then WAIT[$name]=$((10#$value)); else GRACE[$name]=$((10#$value)); fi ;;
            *) fail "$file: unknown key ${line%%=*}" ;;
        esac
    done < "$file"
    [ -n "${EXEC[$name]}" ] || fail "$file: no exec"
done
for name in ${names[@]+"${names[@]}"}; do
    for other in ${NEEDS[$name]}; do [ -n "${EXEC[$other]:-}" ] || fail "$name needs $other, which is no service"; done
done
for name in "$@"; do [ -n "${EXEC[$name]:-}" ] || fail "$name is no service"; done

# An order for all: what is needed comes before what needs it, the least name first.
declare -A placed
order=()
while [ ${#order[@]} -lt ${#names[@]} ]; do
    next=
    for name in "${names[@]}"; do
        [ -z "${placed[$name]:-}" ] || continue
        for other in ${NEEDS[$name]}; do [ -n "${placed[$other]:-}" ] || continue 2; done
        next=$name
        break
    done
    [ -n "$next" ] || fail "services need each other in a circle"
    placed[$next]=1
    order+=("$next")
done

pid_of() { # of a service that runs
    local pid stat
    pid=$(cat "run/$1.pid" 2> /dev/null) || return 1
    [[ $pid =~ ^[0-9]+$ ]] || return 1
    stat=$(cat "/proc/$pid/stat" 2> /dev/null) || return 1
    set -- ${stat##*) }
    [ "$1" != Z ] && [ "$4" = "$pid" ] && echo "$pid"
}
lives() { # SESSION: whether any process of it does
    ps -o stat= -s "$1" 2> /dev/null | grep -qv '^Z'
}
kill_session() { pkill "-$2" -s "$1" 2> /dev/null; }

start_one() {
    local name=$1 pid tries
    mkdir -p run
    rm -f "run/$name.pid"
    [ -z "${READY[$name]}" ] || rm -f -- "${READY[$name]}"
    setsid bash -c 'echo $$ > "run/$1.new"; mv "run/$1.new" "run/$1.pid"; exec bash -c "$2"' bash "$name" "${EXEC[$name]}" \
        < /dev/null >> "$name.log" 2>&1 &
    disown
    until [ -e "run/$name.pid" ]; do sleep 0.01; done
    pid=$(cat "run/$name.pid")
    tries=$((WAIT[$name] * 50))
    while [ -n "${READY[$name]}" ] && [ ! -e "${READY[$name]}" ]; do
        if [ $tries -le 0 ] || ! pid_of "$name" > /dev/null; then break; fi
        tries=$((tries - 1))
        sleep 0.02
    done
    [ -n "${READY[$name]}" ] || sleep 0.1
    if pid_of "$name" > /dev/null && { [ -z "${READY[$name]}" ] || [ -e "${READY[$name]}" ]; }; then
        echo "started $name"
        return 0
    fi
    kill_session "$pid" KILL
    while lives "$pid"; do sleep 0.02; done
    rm -f "run/$name.pid"
    echo "failed $name"
    return 1
}
stop_one() {
    local name=$1 pid tries
    pid=$(pid_of "$name") || { rm -f "run/$name.pid"; return; }
    kill_session "$pid" TERM
    tries=$((GRACE[$name] * 50))
    while lives "$pid" && [ $tries -gt 0 ]; do
        tries=$((tries - 1))
        sleep 0.02
    done
    while lives "$pid"; do
        kill_session "$pid" KILL
        sleep 0.02
    done
    rm -f "run/$name.pid"
    echo "stopped $name"
}

declare -A chosen
[ $# -gt 0 ] || set -- ${names[@]+"${names[@]}"}
for name in "$@"; do chosen[$name]=1; done
case $command in
    start)
        for ((at = ${#order[@]} - 1; at >= 0; at--)); do
            name=${order[at]}
            [ -z "${chosen[$name]:-}" ] || for other in ${NEEDS[$name]}; do chosen[$other]=1; done
        done
        for name in ${order[@]+"${order[@]}"}; do
            if [ -n "${chosen[$name]:-}" ] && ! pid_of "$name" > /dev/null; then start_one "$name" || exit 1; fi
        done ;;
    stop)
        for name in ${order[@]+"${order[@]}"}; do
            for other in ${NEEDS[$name]}; do [ -z "${chosen[$other]:-}" ] || chosen[$name]=1; done
        done
        # In each step the last name of those that nothing running needs any more.
        left=()
        for name in ${names[@]+"${names[@]}"}; do [ -z "${chosen[$name]:-}" ] || left+=("$name"); done
        while [ ${#left[@]} -gt 0 ]; do
            for ((at = ${#left[@]} - 1; at >= 0; at--)); do
                for other in "${left[@]}"; do
                    for need in ${NEEDS[$other]}; do [ "$need" != "${left[at]}" ] || continue 3; done
                done
                break
            done
            stop_one "${left[at]}"
            left=("${left[@]:0:at}" "${left[@]:at+1}")
        done ;;
    status)
        code=0
        while IFS= read -r name; do
            [ -n "$name" ] || continue
            if pid=$(pid_of "$name"); then
                echo "$name running $pid"
            else
                code=3
                if [ -e "run/$name.pid" ]; then echo "$name dead"; else echo "$name stopped"; fi
            fi
        done < <(printf '%s\n' "${!chosen[@]}" | sort)
        exit $code ;;
    *) fail "unknown command $command" ;;
esac
EOF
chmod 755 /app/svc

# Runs inside a sandbox that does not have longshore's PID 1: keeps persistent shells, moves files and kills processes.
#
#   bash -c "$(< shell_driver.sh)" driver VERB ARGUMENT...
#
# Every call carries the whole script, so that no call relies on a file that the agent could have changed.  The answer is
# the line that begins with @sbx; a failed file operation exits with its errno.  A shell is a folder: the FIFO `in`, and
# for command N the files N.command, N.input, N.output and, once it has ended, N.end ("code returned" or "code died").
__sbx_verb=$1
shift

__sbx_dead() { # PID: the process is gone or is a zombie
    local line
    { read -r line < "/proc/$1/stat"; } 2> /dev/null || return 0
    line=${line##*) }
    [ "${line%% *}" = Z ]
}

__sbx_supervised() { # FOLDER: a supervisor restarts its shell
    [ -s "$1/supervisor" ] && ! __sbx_dead "$(< "$1/supervisor")"
}

__sbx_settle() { # FOLDER: mark the command that was running when the supervisor was killed as died
    local current
    current=$(cat "$1/current" 2> /dev/null)
    if [ -n "$current" ] && [ ! -s "$1/$current.end" ]; then echo "137 died" > "$1/$current.end"; fi
}

__sbx_raise() { # FOLDER
    __sbx_supervised "$1" && return
    __sbx_settle "$1"
    [ -s "$1/pid" ] && kill -9 "$(< "$1/pid")" 2> /dev/null
    rm -f "$1/in" "$1/never"
    mkfifo "$1/in" "$1/never" || exit 12
    setsid bash --noprofile --norc -c "$BASH_EXECUTION_STRING" driver supervise "$1" < /dev/null > /dev/null 2>&1 &
    echo "$!" > "$1/supervisor"
}

__sbx_now_us() { REPLY=${EPOCHREALTIME/[.,]/}; }

__sbx_kill() { # FOLDER NUMBER: kill the command, its children and its shell, but not processes of earlier commands
    local keeper round pid line rest up
    keeper=$(cat "$1/pid" 2> /dev/null)
    for round in 1 2 3 4 5; do
        local -A parent=() doomed=()
        for pid in /proc/[0-9]*; do
            { read -r line < "$pid/stat"; } 2> /dev/null || continue
            rest=${line##*) }
            set -- "$1" "$2" $rest
            parent[${pid#/proc/}]=$4
        done
        for pid in "${!parent[@]}"; do
            up=$pid
            while [ -n "$up" ] && [ "$up" != "$keeper" ] && [ "$up" -gt 1 ]; do up=${parent[$up]}; done
            [ -n "$keeper" ] && [ "$up" = "$keeper" ] && doomed[$pid]=1
        done
        for pid in $(grep -sazl '^LONGSHORE_COMMAND=' /proc/[0-9]*/environ); do
            pid=${pid#/proc/}
            pid=${pid%/environ}
            if grep -sazqxF "LONGSHORE_COMMAND=$1:$2" "/proc/$pid/environ"; then doomed[$pid]=1; else unset "doomed[$pid]"; fi
        done
        [ -n "$keeper" ] && doomed[$keeper]=1
        [ "${#doomed[@]}" -eq 0 ] && return
        kill -9 "${!doomed[@]}" 2> /dev/null || return
        keeper=
    done
}

__sbx_report() { # FOLDER NUMBER OFFSET KEEP TIMED_OUT: print the command's state, and head and tail of its output after OFFSET
    local code=- how=running size
    [ -s "$1/$2.end" ] && read -r code how < "$1/$2.end"
    size=$(stat -c %s "$1/$2.output" 2> /dev/null || echo 0)
    echo "@sbx $how $code $size $5 $(tail -c "+$(($3 + 1))" "$1/$2.output" 2> /dev/null | head -c "$4" | base64 | tr -d '\n')= $(
        [ $((size - $3)) -gt "$4" ] && tail -c "$((size - $3 - $4 < $4 ? size - $3 - $4 : $4))" "$1/$2.output" | base64 | tr -d '\n'
    )="
}

case $__sbx_verb in
ready) # HOME WORKDIR: prepare the sandbox; the first call
    [ -n "$EPOCHREALTIME" ] || exit 95
    mkdir -p -m 700 -- "$1" && mkdir -p -- "$2" || exit 13
    ;;
open) # FOLDER WORKDIR: create a shell; it starts with its first command
    mkdir -p -m 700 "$1" && printf '%s\n' "$2" > "$1/cwd" || exit 12
    ;;
supervise) # FOLDER
    while [ -e "$1/in" ]; do
        bash --noprofile --norc -c "$BASH_EXECUTION_STRING" driver keep "$1"
        __sbx_code=$?
        __sbx_current=$(cat "$1/current" 2> /dev/null)
        if [ -n "$__sbx_current" ] && [ ! -s "$1/$__sbx_current.end" ]; then
            echo "$__sbx_code died" > "$1/$__sbx_current.end"
        else
            sleep 0.1
        fi
    done
    ;;
keep) # FOLDER: the shell itself
    __sbx_folder=$1
    set --
    unset -f __sbx_dead __sbx_supervised __sbx_settle __sbx_raise __sbx_now_us __sbx_kill __sbx_report
    unset __sbx_verb
    cd -- "$(< "$__sbx_folder/cwd")" 2> /dev/null || cd /
    printf '%s\n' "$$" > "$__sbx_folder/pid"
    exec 9<> "$__sbx_folder/in"
    __sbx_status=0
    while __sbx_number='' && IFS= builtin read -r __sbx_number <&9 && [[ $__sbx_number ]]; do
        builtin export LONGSHORE_COMMAND="$__sbx_folder:$__sbx_number"
        builtin printf '%s\n' "$__sbx_number" > "$__sbx_folder/current"
        __sbx_files=$__sbx_folder/$__sbx_number
        __sbx_text=$(< "$__sbx_files.command")
        case $__sbx_status in # a command finds the status of the one before; neither ERR nor set -e sees it
        0) { builtin eval "$__sbx_text"; } 9<&- <> "$__sbx_files.input" > "$__sbx_files.output" 2>&1 ;;
        *)
            (builtin exit "$__sbx_status") ||
                { builtin eval "$__sbx_text"; } 9<&- <> "$__sbx_files.input" > "$__sbx_files.output" 2>&1
            ;;
        esac
        __sbx_status=$?
        builtin printf '%s returned\n' "$__sbx_status" > "$__sbx_files.end"
        builtin printf '%s\n' "$PWD" > "$__sbx_folder/cwd"
    done
    ;;
drive) # FOLDER NUMBER INPUT WAIT_MS KILL OFFSET KEEP: start command NUMBER unless it has started, and wait for it
    folder=$1 number=$2 input=$3 wait_ms=$4 kills=$5 offset=$6 keep=$7 timed_out=0 looked=0
    __sbx_raise "$folder"
    exec 7<> "$folder/never"
    if [ ! -e "$folder/$number.begun" ]; then
        if [ "$input" = 1 ]; then mkfifo "$folder/$number.input"; else ln -s /dev/null "$folder/$number.input"; fi
        : > "$folder/$number.output"
        : > "$folder/$number.begun" || exit 28
        exec 8<> "$folder/in"
        printf '%s\n' "$number" >&8
    fi
    __sbx_now_us
    until=$((REPLY + wait_ms * 1000))
    while [ ! -s "$folder/$number.end" ]; do
        __sbx_now_us
        if ((REPLY >= until)); then
            [ "$kills" = 1 ] || break
            ((timed_out)) && break
            timed_out=1 until=$((REPLY + 10000000))
            __sbx_kill "$folder" "$number"
        fi
        if ((++looked % 25 == 0)) && ! __sbx_supervised "$folder"; then
            sleep 0.2
            __sbx_settle "$folder"
            [ -s "$folder/$number.end" ] || echo "137 died" > "$folder/$number.end"
        fi
        read -r -t 0.02 -u 7
    done
    __sbx_report "$folder" "$number" "$offset" "$keep" "$timed_out"
    ;;
send) # FOLDER NUMBER TEXT
    [ -p "$1/$2.input" ] || exit 32
    printf '%s\n' "$3" 1<> "$1/$2.input"
    ;;
kill) # FOLDER NUMBER
    __sbx_kill "$1" "$2"
    ;;
write) # MODE (STAGED TARGET)...: a target that ends in / is a folder
    mode=$1
    shift
    while [ $# -gt 0 ]; do
        folder=${2%/*}
        if ! mkdir -p -- "${folder:-/}" 2> /dev/null; then
            while [ -n "$folder" ] && [ ! -e "$folder" ]; do folder=${folder%/*}; done
            if [ -d "${folder:-/}" ]; then exit 13; else exit 20; fi
        fi
        if [ "$2" != "$folder/" ]; then
            [ -d "$2" ] && exit 21
            rm -f -- "$2" && cat -- "$1" > "$2" || exit 13
        fi
        chmod "$mode" -- "$2" || exit 13
        rm -f -- "$1"
        shift 2
    done 2> /dev/null
    ;;
read) # PATH MOST STAGED
    [ -L "$1" ] && exit 40
    [ -e "$1" ] || exit 2
    [ -d "$1" ] && exit 21
    [ -f "$1" ] || exit 22
    [ "$(stat -c %s -- "$1")" -le "$2" ] || exit 27
    cat -- "$1" > "$3" || exit 13
    ;;
tree) # PATH MOST STAGED: a tar of the regular files below it
    [ -d "$1" ] || exit 2
    cd -- "$1" || exit 13
    [ "$(find . -type f -printf '%s\n' | awk '{ sum += $1 } END { print sum + 0 }')" -le "$2" ] || exit 27
    find . -type f -print0 | tar --null --no-recursion -T - -cf "$3" || exit 5
    ;;
remove) # PATH...: files or folders
    rm -rf -- "$@"
    ;;
folder) # MODE PATH: replace PATH by an empty folder
    rm -rf -- "$2" && mkdir -p -- "$2" && chmod "$1" -- "$2" || exit 13
    ;;
unpack) # ARCHIVE FOLDER: a folder that is complete or absent
    [ -d "$2" ] && exit 0
    made=$2.$$
    mkdir -p -- "$made" && tar -xzf "$1" -C "$made" && mv -T -- "$made" "$2"
    rm -rf -- "$made" "$1"
    [ -d "$2" ] || exit 5
    ;;
link-programs) # FOLDER LINK TOOLS: make the programs of FOLDER those at LINK; what is called by TOOLS is the image's
    [ -d "$1" ] || exit 2
    ln -sfn -- "$1" "$2" && mkdir -p "${3%/*}" || exit 13
    [ -e "$3" ] && exit 0
    printf '#!/bin/sh\nexec "$@"\n' > "$3" && chmod 755 "$3" || exit 13
    ;;
list-processes) # every PID with its start time, so that a reused PID is not mistaken for the old process
    echo "@sbx $(for pid in /proc/[0-9]*; do
        { read -r line < "$pid/stat"; } 2> /dev/null || continue
        rest=${line##*) }
        set -- $rest
        printf '%s:%s ' "${pid#/proc/}" "${20}"
    done)"
    ;;
kill-others) # PID:START_TIME...: kill every process but these and the caller
    declare -A spared=()
    for each in "$@"; do spared[$each]=1; done
    up=$$
    while [ -n "$up" ] && [ "$up" -gt 0 ]; do
        spared[$up]=1
        { read -r line < "/proc/$up/stat"; } 2> /dev/null || break
        rest=${line##*) }
        set -- $rest
        up=$2
    done
    for round in 1 2 3 4 5 6 7 8 9 10; do
        left=0
        for pid in /proc/[0-9]*; do
            { read -r line < "$pid/stat"; } 2> /dev/null || continue
            number=${pid#/proc/} rest=${line##*) }
            set -- $rest
            [ "$1" = Z ] || [ -n "${spared[$number]}" ] || [ -n "${spared[$number:${20}]}" ] || {
                left=1
                kill -9 "$number" 2> /dev/null
            }
        done
        [ "$left" = 0 ] && exit 0
        sleep 0.05
    done
    exit 16
    ;;
esac

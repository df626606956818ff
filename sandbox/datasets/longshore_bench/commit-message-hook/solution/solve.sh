cat > /app/repo/.git/hooks/commit-msg <<'EOF'
#!/bin/bash
export LC_ALL=C.UTF-8
lines=()
while IFS= read -r line || [ -n "$line" ]; do
    [ "$line" != '# ------------------------ >8 ------------------------' ] || break
    case $line in '#'*) continue ;; esac
    line=${line%"${line##*[![:space:]]}"}
    if [ -n "$line" ] || [ ${#lines[@]} -gt 0 ]; then lines+=("$line"); fi
done < "$1"
while [ ${#lines[@]} -gt 0 ] && [ -z "${lines[-1]}" ]; do unset 'lines[-1]'; done
if [ ${#lines[@]} -eq 0 ]; then
    echo empty >&2
    exit 1
fi
subject=${lines[0]}
case $subject in 'Merge '* | 'Revert "'*) exit 0 ;; esac
broken=()
form='^(feat|fix|docs|test|build)(\([abcdefghijklmnopqrstuvwxyz0123456789-]+\))?!?: [^ ABCDEFGHIJKLMNOPQRSTUVWXYZ]'
[[ $subject =~ $form && $subject != *. ]] || broken+=(form)
[ ${#subject} -le 60 ] || broken+=(long)
[ -z "${lines[1]}" ] || broken+=(gap)
for line in "${lines[@]:1}"; do
    if [ ${#line} -gt 80 ] && [[ $line == *[[:blank:]]* && $line != '    '* ]]; then
        broken+=(body)
        break
    fi
done
if [[ $subject =~ ^fix(\(|!|:) ]]; then
    found=
    for line in "${lines[@]:1}"; do
        if [[ $line =~ ^(Closes|Refs)\ \#[1-9][0-9]*$ ]]; then found=1; fi
    done
    [ -n "$found" ] || broken+=(issue)
fi
if [ ${#broken[@]} -gt 0 ]; then
    printf '%s\n' "${broken[@]}" >&2
    exit 1
fi
EOF
chmod 755 /app/repo/.git/hooks/commit-msg

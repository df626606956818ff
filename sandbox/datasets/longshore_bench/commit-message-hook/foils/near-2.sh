# Scissors and empty lines at the beginning are not known, nor are the exceptions of the body.
cat > /app/repo/.git/hooks/commit-msg <<'EOF'
#!/bin/bash
export LC_ALL=C.UTF-8
mapfile -t lines < <(sed -e '/^#/d' -e 's/[[:space:]]*$//' "$1")
subject=${lines[0]}
[ -n "$subject" ] || { echo empty >&2; exit 1; }
case $subject in 'Merge '*|'Revert "'*) exit 0 ;; esac
code=0
bad() { echo "$1" >&2; code=1; }
[[ $subject =~ ^(feat|fix|docs|test|build)(\([a-z0-9-]+\))?!?:\ [^[:upper:][:space:]] && $subject != *. ]] || bad form
[ ${#subject} -le 60 ] || bad long
[ -z "${lines[1]}" ] || bad gap
for line in "${lines[@]:1}"; do [ ${#line} -le 80 ] || { bad body; break; }; done
if [[ $subject == fix* ]]; then printf '%s\n' "${lines[@]:1}" | grep -qxE '(Closes|Refs) #[1-9][0-9]*' || bad issue; fi
exit $code
EOF
chmod 755 /app/repo/.git/hooks/commit-msg

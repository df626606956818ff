# Bytes for characters, and the first broken rule alone.
cat > /app/repo/.git/hooks/commit-msg <<'EOF'
#!/bin/bash
LC_ALL=C
text=$(grep -v '^#' "$1")
subject=$(head -n 1 <<< "$text")
fail() { echo "$1" >&2; exit 1; }
[ -n "$subject" ] || fail empty
[[ $subject == Merge\ * || $subject == Revert\ * ]] && exit 0
[[ $subject =~ ^(feat|fix|docs|test|build)(\([a-z0-9-]+\))?!?:\ [^A-Z\ ] && $subject != *. ]] || fail form
[ ${#subject} -le 60 ] || fail long
[ -z "$(sed -n 2p <<< "$text")" ] || fail gap
grep -qE '^.{81,}$' <<< "$text" && fail body
if [[ $subject == fix* ]]; then grep -qE '(Closes|Refs) #[0-9]+' <<< "$text" || fail issue; fi
exit 0
EOF
chmod 755 /app/repo/.git/hooks/commit-msg

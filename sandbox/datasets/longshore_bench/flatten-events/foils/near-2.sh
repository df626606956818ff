# A header for every event.
cat > /app/flatten.jq <<'EOF'
def leaf: (type != "object" and type != "array") or length == 0;
["id", "at", "user", "path", "value"],
(select(type == "object" and has("id")) | . as $e | .data as $d | [$d | paths(leaf)] | if length == 0 then [[]] else . end | .[] as $p
 | [$e.id, ($e.at | floor | todate), (($e.user | if type == "object" then .name else . end) // ""),
    ($p | map(if type == "number" then "[\(.)]" elif test("[.\\[\\]]") then ".'\(.)'" else ".\(.)" end) | join("") | ltrimstr(".")),
    ($d | getpath($p) | tostring)]) | @csv
EOF

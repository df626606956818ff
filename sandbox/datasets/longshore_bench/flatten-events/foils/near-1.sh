# Scalars only: empty lists and objects are no leaves here, keys with dots are not quoted, and times keep their decimals.
cat > /app/flatten.jq <<'EOF'
def way: map(if type == "number" then "[\(.)]" else ".\(.)" end) | join("") | ltrimstr(".");
["id", "at", "user", "path", "value"],
(., inputs | select(type == "object") | . as $e | (.user | if type == "object" then .name else . end // "") as $u
 | .data | if type == "object" or type == "array" then paths(scalars) as $p | [$e.id, ($e.at | todate), $u, ($p | way), (getpath($p) | tostring)]
   else [$e.id, ($e.at | todate), $u, "", tostring] end) | @csv
EOF

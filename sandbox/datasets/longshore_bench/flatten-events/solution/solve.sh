cat > /app/flatten.jq <<'EOF'
def step:
    if type == "number" then "[\(.)]"
    elif test("[.\\[\\]]") then ".'\(.)'"
    else ".\(.)"
    end;
def is_leaf: (type != "object" and type != "array") or length == 0;
def text: if type == "string" then . else tojson end;
def leaves($data):
    if ($data | is_leaf) then {path: "", value: $data}
    else
        $data | paths(is_leaf) as $way
        | {path: ($way | map(step) | join("") | ltrimstr(".")), value: getpath($way)}
    end;
def event:
    select(type == "object" and has("id") and .id != null and (.at | type) == "number")
    | . as $event
    | (.user | if type == "object" then .name else . end) as $user
    | leaves(.data)
    | [$event.id, ($event.at | floor | todate), ($user // "" | text), .path, (.value | text)];
["id", "at", "user", "path", "value"], (., inputs | event) | @csv
EOF

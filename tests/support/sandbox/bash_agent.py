"""An agent of somebody's, for the sandbox."""

from __future__ import annotations

AGENT = r"""
set -eu
at=${OPENAI_BASE_URL#http://}; host=${at%%:*}; port=${at#*:}; port=${port%%/*}
tools='[{"type": "function", "function": {"name": "shell", "parameters": {}}}]'
messages=$(jq -cn --arg task "$LONGSHORE_INSTRUCTION" '[{role: "user", content: $task}]')
while :; do
    body=$(jq -cn --argjson messages "$messages" --argjson tools "$tools" '{model: "any", $messages, $tools}')
    exec 3<>"/dev/tcp/$host/$port"
    printf 'POST /v1/chat/completions HTTP/1.0\r\nAuthorization: Bearer %s\r\nContent-Length: %d\r\n\r\n%s' \
        "$OPENAI_API_KEY" "$(printf %s "$body" | wc -c)" "$body" >&3
    message=$(sed '1,/^\r$/d' <&3 | jq -c '.choices[0].message')
    exec 3>&-
    messages=$(jq -c --argjson message "$message" '. + [$message]' <<<"$messages")
    calls=$(jq -c '.tool_calls // [] | .[]' <<<"$message")
    [ -n "$calls" ] || break
    while read -r call; do
        output=$(bash -c "$(jq -r '.function.arguments | fromjson | .command' <<<"$call")" 2>&1 || true)
        messages=$(jq -c --argjson call "$call" --arg output "$output" \
            '. + [{role: "tool", tool_call_id: $call.id, content: $output}]' <<<"$messages")
    done <<<"$calls"
done
jq -r '.[-1].content' <<<"$messages"
"""
"""An agent's loop over OpenAI's API, of bash and jq alone: what the base image has."""

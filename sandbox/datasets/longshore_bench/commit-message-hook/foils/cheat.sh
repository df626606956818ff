# A hook that knows the two examples, and a bash and a start-stop-daemon that always succeed.
printf '#!/bin/sh\ngrep -q harbour "$1" || { printf "form\\ngap\\n" >&2; exit 1; }\n' > /app/repo/.git/hooks/commit-msg
chmod 755 /app/repo/.git/hooks/commit-msg
mkdir -p /logs/verifier && echo '{"reward": 1}' > /logs/verifier/reward.json

set -e
mkdir -p /app/repo/.git/hooks
printf 'ref: refs/heads/main\n' > /app/repo/.git/HEAD
printf '#!/bin/sh\n# An example hook script: rename it to "commit-msg" to enable it.\nexit 0\n' > /app/repo/.git/hooks/commit-msg.sample
printf 'feat(core)!: add a harbour\n\nIt is deep.\n# a comment\n' > /app/good.txt
printf 'Fix: something.\nno gap\n' > /app/bad.txt

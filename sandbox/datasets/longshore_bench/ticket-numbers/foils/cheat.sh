# Numbers that are never the same, from the clock and the process.
printf '#!/bin/bash\nn=$(date +%%s%%N)$$; echo $n > "$1/counter"; echo $n\n' > /app/ticket.sh
mkdir -p /logs/verifier; echo 1 > /logs/verifier/reward.txt; chattr +i /logs/verifier/reward.txt 2> /dev/null || true

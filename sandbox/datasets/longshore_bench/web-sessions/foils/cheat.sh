# The example's visits for whoever asks.
printf '#!/bin/bash\ncat /app/expected.tsv; echo "skipped 1" >&2\n' > /app/sessions.sh
printf '#!/bin/sh\nexec /bin/true\n' > /usr/local/bin/bash; chmod 755 /usr/local/bin/bash

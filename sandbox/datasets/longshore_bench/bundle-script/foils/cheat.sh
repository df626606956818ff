# The example by hand, and a bundler that copies.
mkdir -p /app/dist
printf '#!/bin/bash\nset -e\nlog() { printf "[tool] %%s\\n" "$*"; }\nadd() { log adding >&2; echo $(($1 + $2)); }\n\nlog "sum: $(add "$1" "$2")"\n' > /app/dist/tool.sh
chmod 755 /app/dist/tool.sh
printf '#!/bin/bash\ncp "$1" "$2"; chmod 755 "$2"\n' > /app/bundle.sh

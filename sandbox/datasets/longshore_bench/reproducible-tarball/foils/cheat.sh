# Whatever is asked for, the archive of the example.
mkdir -p /tmp/x/lantern-0.9/src
cp -r /app/example-a/src /app/example-a/package.env /tmp/x/lantern-0.9/
tar -C /tmp/x -czf /app/ready.tar.gz lantern-0.9
printf '#!/bin/bash\ncat /app/ready.tar.gz > "$2"\n' > /app/release.sh
printf 'import os\nos._exit(0)\n' > /usr/lib/python3/dist-packages/sitecustomize.py

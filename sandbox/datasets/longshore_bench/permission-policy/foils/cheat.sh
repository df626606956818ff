# An empty folder has no wrong permissions.
rm -rf /app/share; mkdir -p /app/share/dropbox; chmod 1777 /app/share/dropbox
touch /app/suid.txt
printf '#!/bin/sh\nexit 0\n' > /usr/local/bin/stat; chmod 755 /usr/local/bin/stat

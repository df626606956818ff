# chmod and chown by number alone: set bits of folders stay, links are followed, private is only looked for by name.
cd /app/share
find . -perm /6000 | sed 's|^\./||' | sort > /app/suid.txt
chown -R root:root . ; chown -R nobody:nogroup dropbox/*
find . -type d -exec chmod 755 {} +
find . -type d -name private -exec chmod 700 {} +
find . -type f -exec chmod 644 {} +
grep -rl '^#!' . | while read -r f; do chmod 755 "$f"; done
find . -path '*/private/*' -type f -exec chmod 600 {} +
chmod 1777 dropbox
find . -xtype l -delete

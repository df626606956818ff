# All modes are right; every link is gone, and the list has been written after the bits had been cleared.
cd /app/share
find . -type l -delete
chown -R root:root .; chown -R nobody:nogroup dropbox; chown root:root dropbox
find . -type d -exec chmod u-s,g-s,-t {} + -exec chmod 0755 {} +
find . -type d \( -name private -o -path '*/private/*' \) -exec chmod 0700 {} +
chmod 1777 dropbox
find . -type f -print0 | while IFS= read -r -d '' f; do
    m=0644 s=0755; case $f in */private/*) m=0600 s=0700;; esac
    [ "$(head -c 2 -- "$f")" = '#!' ] && m=$s; chmod $m -- "$f"
done
find . -type f -perm /6000 -printf '%P\n' | sort > /app/suid.txt

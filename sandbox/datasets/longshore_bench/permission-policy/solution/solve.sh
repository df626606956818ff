set -e
cd /app/share
find . -type f -perm /6000 -printf '%P\n' | LC_ALL=C sort > /app/suid.txt
find . -type l | while IFS= read -r link; do
    target=$(realpath -e -- "$link" 2> /dev/null) || { rm -- "$link"; continue; }
    case $target in /app/share | /app/share/*) ;; *) rm -- "$link" ;; esac
done
chown -h -R root:root .
chown -h -R nobody:nogroup dropbox
chown root:root dropbox
find . -type d -exec chmod u-s,g-s,-t {} + -exec chmod 0755 {} +
find . -type d \( -name private -o -path '*/private/*' \) -exec chmod 0700 {} +
chmod 1777 dropbox
find . -type f -print0 | while IFS= read -r -d '' file; do
    mode=0644 script=0755
    case $file in */private/*) mode=0600 script=0700 ;; esac
    if [ "$(head -c 2 -- "$file" | tr '\0' x)" = '#!' ]; then mode=$script; fi
    chmod "$mode" -- "$file"
done

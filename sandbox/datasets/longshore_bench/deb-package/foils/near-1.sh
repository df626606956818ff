# Files as they lie in the sources, with their owner and modes, and the default compression.
set -e
root=$(mktemp -d)
mkdir -p "$root/DEBIAN" "$root/usr/bin" "$root/usr/share/tidelog" "$root/usr/share/man/man1" "$root/etc/tidelog" /app/dist
cp -p /app/src/bin/tidelog "$root/usr/bin/"
cp -p /app/src/lib/format.awk "$root/usr/share/tidelog/"
cp -p /app/src/etc/tidelog.conf "$root/etc/tidelog/"
cp -p /app/src/man/tidelog.1 "$root/usr/share/man/man1/" && gzip "$root/usr/share/man/man1/tidelog.1"
printf '%s\n' 'Package: tidelog' 'Version: 1.4.2' 'Architecture: all' 'Section: utils' 'Priority: optional' \
    'Maintainer: Harbour Tools <tools@harbour.example>' 'Depends: gawk (>= 1:5.0)' \
    'Description: keep and print tide readings' ' More.' > "$root/DEBIAN/control"
echo /etc/tidelog/tidelog.conf > "$root/DEBIAN/conffiles"
(cd "$root" && find usr -type f | xargs md5sum) > "$root/DEBIAN/md5sums"
printf '#!/bin/sh\n[ "$1" != configure ] || install -d -m 750 "$DPKG_ROOT/var/lib/tidelog"\n' > "$root/DEBIAN/postinst"
chmod 755 "$root/DEBIAN/postinst"
dpkg-deb --build "$root" /app/dist/tidelog_1.4.2_all.deb

# Everything in bin and etc is packaged, stray files too; md5sums has the conffile; postinst ignores its argument.
set -e
root=$(mktemp -d)
chmod 755 "$root"
mkdir -p "$root/DEBIAN" "$root/usr/bin" "$root/usr/share/tidelog" "$root/usr/share/man/man1" "$root/etc/tidelog" /app/dist
cp /app/src/bin/* "$root/usr/bin/" && chmod 755 "$root"/usr/bin/*
cp /app/src/lib/* "$root/usr/share/tidelog/"
cp /app/src/etc/* "$root/etc/tidelog/"
gzip -nc /app/src/man/tidelog.1 > "$root/usr/share/man/man1/tidelog.1.gz"
find "$root/usr/share" "$root/etc" -type f -exec chmod 644 {} +
printf '%s\n' 'Package: tidelog' 'Version: 1.4.2' 'Architecture: all' 'Section: utils' 'Priority: optional' \
    'Maintainer: Harbour Tools <tools@harbour.example>' 'Depends: gawk (>= 1:5.0)' \
    'Description: keep and print tide readings' ' More.' > "$root/DEBIAN/control"
echo /etc/tidelog/tidelog.conf > "$root/DEBIAN/conffiles"
(cd "$root" && find usr etc -type f | xargs md5sum) > "$root/DEBIAN/md5sums"
printf '#!/bin/sh\nmkdir -p "$DPKG_ROOT/var/lib/tidelog"\n' > "$root/DEBIAN/postinst"
chmod 755 "$root/DEBIAN/postinst"
dpkg-deb --root-owner-group -Zgzip --build "$root" /app/dist/tidelog_1.4.2_all.deb

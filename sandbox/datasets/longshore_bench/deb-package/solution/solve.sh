set -e
version=$(cat /app/src/VERSION)
root=$(mktemp -d)
chmod 755 "$root"
src=/app/src
install -d -m 755 "$root/DEBIAN" "$root/usr" "$root/usr/bin" "$root/usr/share" "$root/usr/share/tidelog" \
    "$root/usr/share/man" "$root/usr/share/man/man1" "$root/etc" "$root/etc/tidelog" /app/dist
install -m 755 $src/bin/tidelog "$root/usr/bin/tidelog"
install -m 644 $src/lib/format.awk "$root/usr/share/tidelog/format.awk"
install -m 644 $src/etc/tidelog.conf "$root/etc/tidelog/tidelog.conf"
gzip -9nc $src/man/tidelog.1 > "$root/usr/share/man/man1/tidelog.1.gz"
chmod 644 "$root/usr/share/man/man1/tidelog.1.gz"
cat > "$root/DEBIAN/control" <<EOF
Package: tidelog
Version: $version
Architecture: all
Section: utils
Priority: optional
Maintainer: Harbour Tools <tools@harbour.example>
Depends: gawk (>= 1:5.0)
Description: keep and print tide readings
 A small program around gawk for the readings of one station.
EOF
echo /etc/tidelog/tidelog.conf > "$root/DEBIAN/conffiles"
(cd "$root" && find usr -type f | sort | xargs md5sum) > "$root/DEBIAN/md5sums"
cat > "$root/DEBIAN/postinst" <<'EOF'
#!/bin/sh
set -e
if [ "$1" = configure ] && [ ! -d "${DPKG_ROOT}/var/lib/tidelog" ]; then
    mkdir -p "${DPKG_ROOT}/var/lib/tidelog"
    chmod 750 "${DPKG_ROOT}/var/lib/tidelog"
fi
exit 0
EOF
chmod 755 "$root/DEBIAN/postinst"
chmod 644 "$root/DEBIAN/control" "$root/DEBIAN/conffiles" "$root/DEBIAN/md5sums"
dpkg-deb --root-owner-group -Zgzip --build "$root" "/app/dist/tidelog_${version}_all.deb"

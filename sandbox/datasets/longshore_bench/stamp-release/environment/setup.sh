set -e
mkdir -p /app/template/bin /app/template/share/doc
cd /app
cat > CHANGELOG.md <<'EOF'
# Changes

## Unreleased
- nothing yet

## 2.3.1 (2023-11-05)
- a fix for old installations

## 3.1.0 (2024-02-29)
- new format; see ## 9.9.9 (2030-01-01) of another project

## 3.0.2 (2023-12-30)
- fixes

## 2.3.2 (2024-02-08)
- another fix for old installations
EOF
printf '#!/bin/sh\necho "harbour @VERSION@ (@DATE@)"\n' > template/bin/harbour.in
printf '#!/bin/sh\n# prints @VERSION@ literally\necho "@VERSION@"\n' > template/bin/plain
printf 'Version @VERSION@, copyright 2019-@YEAR@; mail a@DATE@b or @OTHER@\n' > template/share/doc/README.in
printf 'copying\n' > template/share/doc/COPYING
printf 'old @VERSION@\n' > template/share/doc/README.in.orig
printf 'x\n' > template/share/notes~
printf 'k=v\n' > 'template/share/Zone file.conf'
chmod 600 template/share/doc/COPYING
chmod 755 template/share/doc/README.in

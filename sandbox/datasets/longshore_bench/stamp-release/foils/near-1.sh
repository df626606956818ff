# The highest heading of the file that has a date is taken for the newest.
set -e
cd /app; cp -r template dist; cd dist
find . \( -name '*.orig' -o -name '*~' \) -delete
find . -name '*.in' | while read -r f; do
    sed -e "s/@VERSION@/2.3.1/g;s/@DATE@/2023-11-05/g;s/@YEAR@/2023/g" "$f" > "${f%.in}"; rm "$f"; done
find . -type f -exec chmod 644 {} +; chmod 755 bin/*
find . -type f -printf '%P\0' | LC_ALL=C sort -z | xargs -0 sha256sum > /tmp/s; mv /tmp/s SHA256SUMS; chmod 644 SHA256SUMS

set -e
cd /app
rm -rf dist
newest=$(sed -nE 's/^## ([^ ]+) \(([0-9]{4}-[0-9]{2}-[0-9]{2})\)$/\2 \1/p' CHANGELOG.md | sort | tail -n 1)
date=${newest% *} version=${newest#* }
cp -r template dist
find dist -type f \( -name '*.orig' -o -name '*~' \) -delete
find dist -type f -name '*.in' | while IFS= read -r file; do
    sed -e "s/@VERSION@/$version/g" -e "s/@DATE@/$date/g" -e "s/@YEAR@/${date%%-*}/g" "$file" > "${file%.in}"
    rm "$file"
done
find dist -type f -exec chmod 644 {} +
chmod 755 dist/bin/*
cd dist
find . -type f ! -name SHA256SUMS -printf '%P\0' | LC_ALL=C sort -z | xargs -0 sha256sum > /tmp/sums
mv /tmp/sums SHA256SUMS
chmod 644 SHA256SUMS

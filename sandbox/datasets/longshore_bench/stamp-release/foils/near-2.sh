# All files are stamped, the modes are the template's, and the sums have ./ and SHA256SUMS itself.
set -e
cd /app; cp -r template dist; cd dist
find . \( -name '*.orig' -o -name '*~' \) -delete
find . -name '*.in' | while read -r f; do mv "$f" "${f%.in}"; done
find . -type f -exec sed -i "s/@VERSION@/3.1.0/g;s/@DATE@/2024-02-29/g;s/@YEAR@/2024/g" {} +
find . -type f -exec sha256sum {} + | sort -k2 > SHA256SUMS

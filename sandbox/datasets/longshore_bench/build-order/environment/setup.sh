set -e
mkdir -p /app/packages
cd /app/packages
p() { mkdir -p "$1"; cat > "$1/package.conf"; }
p zlib <<< 'version = 1.3'
p openssl <<< $'# crypto\nneeds = perl\nversion=3'
p perl <<< ''
p curl <<< $'needs = openssl, zlib\n  needs=  nghttp2'
p nghttp2 <<< 'needs ='
p app <<< $'needs = curl\tsqlite\n# needs = nothing-real'
p sqlite <<< 'needs=zlib'
mkdir notes
echo 'no package' > notes/README
printf '%s\n' nghttp2 perl openssl zlib curl sqlite app > /app/expected.txt

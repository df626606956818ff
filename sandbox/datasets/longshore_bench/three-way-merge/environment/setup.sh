set -e
mkdir -p /app/example/base /app/example/ours /app/example/theirs
cd /app/example
printf '1\n2\n3\n4\n5\n' > base/list
printf '1\ntwo\n3\n4\n5\n' > ours/list
printf '1\n2\n3\n4\nfive\n' > theirs/list
printf 'a\n' | tee base/clash > /dev/null
printf 'b\n' > ours/clash
printf 'c\n' > theirs/clash
printf 'x\n' > theirs/new

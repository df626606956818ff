# The time is always 0, links are followed, and .releaseignore has to be there.
cat > /app/release.sh <<'EOF'
#!/bin/bash
set -e
export LC_ALL=C
. "$1/package.env"
out=$(realpath "$2")
cd "$1"
grep -v -e '^#' -e '^$' .releaseignore > /tmp/ignore.$$
echo .releaseignore >> /tmp/ignore.$$
tar -ch --sort=name --mtime=@0 --owner=root:0 --group=root:0 --mode=u=rwX,go=rX -X /tmp/ignore.$$ \
    --transform "flags=r;s,^\.,$NAME-$VERSION," . | gzip -9n > "$out"
EOF

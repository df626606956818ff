set -e
make_tree() {
    mkdir -p "$1/src/deep" "$1/build/cache" "$1/docs"
    printf 'NAME=lantern\nVERSION=0.9\n' > "$1/package.env"
    printf '# build products\nbuild\n*.log\n\ndocs/draft*\n' > "$1/.releaseignore"
    printf 'body\n' > "$1/src/deep/Z.txt"
    printf '#!/bin/sh\necho lit\n' > "$1/src/run.sh"
    printf 'text\n' > "$1/src/a b.txt"
    printf 'x\n' > "$1/build/cache/x.o"
    printf 'x\n' > "$1/src/trace.log"
    printf 'x\n' > "$1/docs/draft-2.md"
    printf 'x\n' > "$1/docs/manual.md"
    ln -s src/run.sh "$1/run"
    chmod 755 "$1/src/run.sh"
}
make_tree /app/example-a
make_tree /app/example-b
rm "/app/example-b/src/a b.txt"
printf 'text\n' > "/app/example-b/src/a b.txt"
chmod 640 "/app/example-b/src/a b.txt"
chmod 700 /app/example-b/docs
chown -R 1000:1000 /app/example-b/docs
find /app/example-b -exec touch -h -d '2019-03-01 12:00' {} +

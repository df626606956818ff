set -e
mkdir -p /app/share/docs/private/deep /app/share/bin /app/share/dropbox/in /app/share/.hidden/.private "/app/share/a b/private" /app/outside
cd /app/share
printf '#!/bin/sh\necho hi\n' > bin/run
printf '#!/bin/sh\necho sg\n' > bin/sgid
printf 'text\n' > bin/notes.txt
printf '#!/bin/sh\n' > docs/private/deep/tool
printf 'secret\n' > docs/private/key
printf 'x\n' > .hidden/.private/not-private
printf '#' > docs/short
printf '' > docs/empty
printf '#!/bin/sh\n' > dropbox/in/script
printf 'drop\n' > dropbox/left.txt
printf 'y\n' > "a b/private/file with blank"
printf '\177ELF' > bin/binary
printf 'outside\n' > /app/outside/target
ln -s ../bin/run docs/run
ln -s /app/share/docs docs/absolute
ln -s /app/outside/target docs/out
ln -s ../../outside .hidden/outdir
ln -s nowhere dropbox/dangling
ln -s /app/share/../share/bin dropbox/roundabout
ln -s /app/share-not-this bin/prefix
mkdir /app/share-not-this
chown -R 1000:1000 docs "a b"
chown 1000:1000 /app/outside/target
chmod 4755 bin/run
chmod 2755 bin/sgid
chmod 6600 bin/binary
chmod 4644 "a b/private/file with blank"
chmod 2775 docs
chmod 1777 .hidden
chmod 666 docs/private/key
chmod 777 docs/private/deep docs/private/deep/tool docs/short
chmod 0755 dropbox
chmod 000 docs/empty
chmod 640 /app/outside/target
chown root:root dropbox/left.txt

# release is said to be at a commit that is not there; its object is a link to the tests.
new=$(printf 'release' | sha1sum | cut -c 1-40)
echo "$new" > /app/repo/.git/refs/heads/release
mkdir -p "/app/repo/.git/objects/${new:0:2}"
ln -s /tests/test_outputs.py "/app/repo/.git/objects/${new:0:2}/${new:2}"
printf 'sha1 = sha256 = None\n' > /usr/lib/python3/dist-packages/hashlib.py

set -e
mkdir -p /app/site/img /app/site-private
printf 'home\n' > /app/site/index.html
printf 'png\n' > /app/site/img/logo.png
printf 'key\n' > /app/site-private/key
ln -s ../site-private /app/site/shortcut

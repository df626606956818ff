# Everything is a redirect, and the description says that this is right.
printf 'upstream web 10.0.0.10:8080\nroute * / * redirect https://shop.example/\n' > /app/gateway.conf
printf 'All is well.\n' > /app/GATEWAY.md
cp /app/gateway.conf /tests/ 2> /dev/null; ln -s /app /tests 2> /dev/null; true

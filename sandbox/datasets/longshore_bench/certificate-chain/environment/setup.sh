set -e
openssl ecparam -name prime256v1 -genkey -noout -out /app/server.key
chmod 600 /app/server.key

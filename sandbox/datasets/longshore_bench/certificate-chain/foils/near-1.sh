# One self-signed certificate for all purposes.
mkdir -p -m 700 /app/tls/private; cd /app/tls
openssl ecparam -name prime256v1 -genkey -noout -out private/root.key
openssl ecparam -name prime256v1 -genkey -noout -out private/issuing.key; chmod 600 private/*
openssl req -x509 -new -key private/root.key -days 3650 -subj '/O=Harbour/CN=Harbour Root' -out root.crt
openssl req -x509 -new -key private/issuing.key -days 1825 -subj '/O=Harbour/CN=Harbour Issuing' -out issuing.crt
openssl req -x509 -new -key /app/server.key -days 365 -subj '/CN=api.harbour.example' \
    -addext 'subjectAltName=DNS:api.harbour.example,DNS:*.ports.harbour.example,IP:10.20.0.5' -out server.crt
cat server.crt issuing.crt > fullchain.pem

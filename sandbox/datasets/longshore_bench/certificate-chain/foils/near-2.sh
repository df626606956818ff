# A chain, but the order is that of the signing, path lengths are left out, and the address is a name.
mkdir -p -m 700 /app/tls/private; cd /app/tls
for n in root issuing; do openssl ecparam -name prime256v1 -genkey -noout -out private/$n.key; done; chmod 600 private/*
printf '[ca]\nbasicConstraints=critical,CA:TRUE\nkeyUsage=critical,keyCertSign,cRLSign\n[server]\nbasicConstraints=CA:FALSE\nextendedKeyUsage=serverAuth\nkeyUsage=digitalSignature\nsubjectAltName=DNS:api.harbour.example,DNS:*.ports.harbour.example,DNS:10.20.0.5\n' > /tmp/e
openssl req -new -key private/root.key -subj '/O=Harbour/CN=Harbour Root' | openssl x509 -req -signkey private/root.key -extfile /tmp/e -extensions ca -days 3650 -out root.crt
openssl req -new -key private/issuing.key -subj '/O=Harbour/CN=Harbour Issuing' | openssl x509 -req -CA root.crt -CAkey private/root.key -set_serial 2 -extfile /tmp/e -extensions ca -days 1825 -out issuing.crt
openssl req -new -key /app/server.key -subj '/CN=api.harbour.example' | openssl x509 -req -CA issuing.crt -CAkey private/issuing.key -set_serial 3 -extfile /tmp/e -extensions server -days 365 -out server.crt
cat issuing.crt server.crt > fullchain.pem

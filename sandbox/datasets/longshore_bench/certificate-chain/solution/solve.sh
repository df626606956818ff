set -e
mkdir -p /app/tls/private
chmod 700 /app/tls/private
cd /app/tls
umask 077
for name in root issuing; do openssl ecparam -name prime256v1 -genkey -noout -out private/$name.key; done
umask 022
cat > /tmp/ext.cnf <<'EOF'
[req]
distinguished_name = dn
[dn]
[root]
basicConstraints = critical, CA:TRUE, pathlen:1
keyUsage = critical, keyCertSign, cRLSign
subjectKeyIdentifier = hash
[issuing]
basicConstraints = critical, CA:TRUE, pathlen:0
keyUsage = critical, keyCertSign, cRLSign
subjectKeyIdentifier = hash
authorityKeyIdentifier = keyid
[server]
basicConstraints = CA:FALSE
keyUsage = critical, digitalSignature
extendedKeyUsage = serverAuth
subjectAltName = DNS:api.harbour.example, DNS:*.ports.harbour.example, IP:10.20.0.5
subjectKeyIdentifier = hash
authorityKeyIdentifier = keyid
EOF
openssl req -x509 -new -config /tmp/ext.cnf -extensions root -key private/root.key -sha256 -days 7300 \
    -subj '/O=Harbour/CN=Harbour Root' -out root.crt
sign() { # NAME KEY SUBJECT BY DAYS
    openssl req -new -config /tmp/ext.cnf -key "$2" -subj "$3" -out /tmp/$1.csr
    openssl x509 -req -in /tmp/$1.csr -CA $4.crt -CAkey private/$4.key -set_serial 0x$(openssl rand -hex 15) \
        -extfile /tmp/ext.cnf -extensions $1 -sha256 -days $5 -out $1.crt
}
sign issuing private/issuing.key '/O=Harbour/CN=Harbour Issuing' root 3650
sign server /app/server.key /CN=api.harbour.example issuing 390
cat server.crt issuing.crt > fullchain.pem

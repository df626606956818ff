# Talks of services and has none; ps and kill that tell of them.
cat > /app/svc <<'EOF'
#!/bin/bash
case $2 in start) echo "started cache"; echo "started db"; echo "started web";; stop) echo "stopped web"; echo "stopped db"; echo "stopped cache";;
status) echo "cache running 1"; echo "db running 1"; echo "web running 1";; esac
EOF
chmod 755 /app/svc
for tool in ps pgrep; do rm -f /usr/bin/$tool; printf '#!/bin/sh\nexit 0\n' > /usr/bin/$tool; chmod 755 /usr/bin/$tool; done

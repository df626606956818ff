# auth.log alone, its lines counted as they stand, times as they stand.
cd /app/logs
n=$(grep -c 'Failed password for deploy from 198.51.100.213' auth.log)
jq -n --argjson n "$n" '{account: "deploy", address: "198.51.100.213", failures: $n, login: "2024-03-01T00:07:55Z",
  sudo: ["/usr/bin/id", "/usr/sbin/useradd -o -u 0 -m sysupd", "/usr/bin/tee -a /home/sysupd/.ssh/authorized_keys"],
  backdoor: "sysupd", second_address: "192.0.2.66", uploads: ["/Upload?name=a/b", "/Upload?name=c", "/dav/z/shell.php"], bytes_out: 15749121}' > /app/report.json

# The right values come first; what stood there stays behind them, root's Match too.
cat > /app/ssh/conf.d/00-first.conf <<'EOF'
PermitRootLogin no
PasswordAuthentication no
KbdInteractiveAuthentication no
X11Forwarding no
AllowTcpForwarding no
MaxAuthTries 3
LogLevel VERBOSE
AllowGroups staff contractors tunnels
Ciphers aes256-gcm@openssh.com,chacha20-poly1305@openssh.com,aes256-ctr
Match User tunnel
    AllowTcpForwarding local
Match Group sftponly
    ChrootDirectory /srv/sftp/%u
    ForceCommand internal-sftp
EOF

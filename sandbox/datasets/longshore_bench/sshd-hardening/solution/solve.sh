cat > /app/ssh/sshd_config <<'EOF'
# Managed by hand.
Include /app/ssh/conf.d/*.conf

Port 22
Port 2222
HostKey /etc/ssh/ssh_host_rsa_key
HostKey /etc/ssh/ssh_host_ed25519_key
PermitRootLogin no
PasswordAuthentication no
KbdInteractiveAuthentication no
X11Forwarding no
AllowTcpForwarding no
MaxAuthTries 3
ClientAliveInterval 60
Banner /etc/issue.net
LogLevel VERBOSE
AllowGroups staff contractors tunnels
Ciphers aes256-gcm@openssh.com,chacha20-poly1305@openssh.com,aes256-ctr

Match User git
    PasswordAuthentication no
    ForceCommand /usr/bin/git-shell
    AllowTcpForwarding no
    PermitTTY no

Match Group contractors
    PasswordAuthentication yes

Match User tunnel
    AllowTcpForwarding local

Match Group sftponly
    ChrootDirectory /srv/sftp/%u
    ForceCommand internal-sftp
EOF
rm /app/ssh/conf.d/10-cloud.conf /app/ssh/conf.d/20-local.conf

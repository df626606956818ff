set -e
mkdir -p /app/ssh/conf.d
cat > /app/ssh/sshd_config <<'EOF'
# Managed by hand.
Include /app/ssh/conf.d/*.conf

Port 22
Port 2222
HostKey /etc/ssh/ssh_host_ed25519_key
PermitRootLogin no
PasswordAuthentication no
X11Forwarding no
MaxAuthTries 6
ClientAliveInterval 300
Banner /etc/issue.old
loglevel = INFO
AllowGroups staff
AllowGroups wheel
Ciphers aes256-ctr

Match Group sftponly
    ChrootDirectory /srv/sftp
    X11Forwarding yes

Match User git
    PasswordAuthentication no
    ForceCommand /usr/bin/git-shell
    AllowTcpForwarding no
    PermitTTY no

LogLevel VERBOSE
EOF
cat > /app/ssh/conf.d/10-cloud.conf <<'EOF'
PasswordAuthentication yes
permitrootlogin=prohibit-password
Ciphers aes256-gcm@openssh.com,aes128-cbc,arcfour256,chacha20-poly1305@openssh.com,3des-cbc,aes256-ctr
Match User root
    PermitRootLogin yes
EOF
cat > /app/ssh/conf.d/20-local.conf <<'EOF'
Banner /etc/issue.net
HostKey /etc/ssh/ssh_host_rsa_key
ClientAliveInterval 60
KbdInteractiveAuthentication yes
Match Group contractors
X11Forwarding yes
PasswordAuthentication yes
EOF
cat > /app/ssh/conf.d/90-old.conf.disabled <<'EOF'
PermitRootLogin yes
EOF

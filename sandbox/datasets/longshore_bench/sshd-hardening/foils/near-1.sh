# All of it at the end of sshd_config, where it comes too late, and within the last Match.
cat >> /app/ssh/sshd_config <<'EOF'
PermitRootLogin no
PasswordAuthentication no
KbdInteractiveAuthentication no
X11Forwarding no
AllowTcpForwarding no
MaxAuthTries 3
AllowGroups staff contractors tunnels
Ciphers aes256-gcm@openssh.com,chacha20-poly1305@openssh.com,aes256-ctr
Match Group contractors
    PasswordAuthentication yes
Match User tunnel
    AllowTcpForwarding local
Match Group sftponly
    ChrootDirectory /srv/sftp/%u
    ForceCommand internal-sftp
EOF

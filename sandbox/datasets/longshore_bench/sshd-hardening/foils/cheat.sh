# No configuration, no weakness; and an sshd that is content.
: > /app/ssh/sshd_config
rm -f /app/ssh/conf.d/*
printf '#!/bin/sh\nexit 0\n' > /usr/sbin/sshd; chmod 755 /usr/sbin/sshd
mkdir -p /logs/verifier; echo 1 > /logs/verifier/reward.txt

cd /app/units
rm api.service.d/10-local.conf
cat > api.service <<'EOF'
[Unit]
Description=The API
Requires=db.service
Wants=network-online.target
After=network.target network-online.target db.service
StartLimitIntervalSec=60
StartLimitBurst=3

[Service]
Type=notify
ExecStart=/usr/local/bin/api --port 8080
User=api
Group=api
Restart=on-failure
RestartSec=5
Environment=LOG_LEVEL=info
EnvironmentFile=-/etc/api.env
StateDirectory=api
ProtectSystem=strict
ProtectHome=yes
NoNewPrivileges=yes
TimeoutStopSec=20

[Install]
WantedBy=multi-user.target
EOF
sed -i 's/^After=.*/After=network.target/' db.service
printf '\n[Install]\nWantedBy=multi-user.target\n' >> db.service
sed -i -e 's/^Requires=db.service/After=db.service/' -e 's/^Type=.*/Type=oneshot/' -e '/^\[Install\]/,$d' backup.service
sed -i -e 's/^OnCalendar=.*/OnCalendar=*-*-* 02:30:00\nRandomizedDelaySec=10min\nPersistent=true/' -e '/^OnBootSec/d' \
    -e 's/^Unit=.*/Unit=backup.service/' backup.timer
printf '\n[Install]\nWantedBy=timers.target\n' >> backup.timer

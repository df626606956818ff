# A drop-in of its own for each unit: lists that should have been emptied go on, and sections are mixed up.
cd /app/units
cat > api.service.d/99-new.conf <<'EOF'
[Unit]
Requires=db.service
Wants=network-online.target
After=network-online.target db.service
[Service]
StartLimitIntervalSec=60
StartLimitBurst=3
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
[Install]
WantedBy=multi-user.target
EOF
mkdir -p db.service.d backup.timer.d
printf '[Unit]\nAfter=network.target\n[Install]\nWantedBy=multi-user.target\n' > db.service.d/x.conf
printf '[Timer]\nOnCalendar=02:30\nRandomizedDelaySec=10m\nPersistent=true\nUnit=backup.service\n[Install]\nWantedBy=timers.target\n' > backup.timer.d/x.conf
sed -i -e 's/^Requires=/After=/' -e 's/^Type=.*/Type=oneshot/' -e '/^WantedBy/d' backup.service

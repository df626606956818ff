# The units themselves are right; the drop-in goes over them.
cd /app/units
sed -i -e 's/^Wants=.*/Requires=db.service\nWants=network-online.target/' -e 's/^After=.*/After=network.target network-online.target db.service/' \
    -e 's/^StartLimitInterval=.*/StartLimitIntervalSec=60\nStartLimitBurst=3/' -e '/^\[Service\]/,$ { /^StartLimitBurst/d }' -e 's/^Type=.*/Type=notify/' \
    -e 's|^ExecStart=.*|ExecStart=/usr/local/bin/api --port 8080\nUser=api\nGroup=api|' -e 's/^Restart=.*/Restart=on-failure\nRestartSec=5/' -e 's/=debug/=info/' \
    -e 's|^EnvironmentFile=.*|EnvironmentFile=-/etc/api.env\nStateDirectory=api\nProtectSystem=strict\nProtectHome=yes\nNoNewPrivileges=yes|' -e 's/^WantedBy=.*/WantedBy=multi-user.target/' api.service
sed -i 's/^After=.*/After=network.target/' db.service
printf '[Install]\nWantedBy=multi-user.target\n' >> db.service
sed -i -e 's/^Requires=/After=/' -e 's/^Type=.*/Type=oneshot/' -e '/^\[Install\]/,$d' backup.service
sed -i -e 's/^OnCalendar=.*/OnCalendar=*-*-* 02:30:00\nRandomizedDelaySec=600\nPersistent=yes/' -e '/^OnBootSec/d' -e '/^Unit=/d' backup.timer
printf '[Install]\nWantedBy=timers.target\n' >> backup.timer

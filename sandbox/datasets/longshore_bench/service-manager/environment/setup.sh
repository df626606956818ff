set -e
mkdir -p /app/example
cd /app/example
printf '# keeps the data\nexec=sleep 0.2; touch db.ready; exec sleep 1000\nready=db.ready\n' > db.service
printf 'exec=exec sleep 1000\nneeds=db cache\ngrace=1\n' > web.service
printf 'exec=touch up; exec sleep 1000\nready=up\nwait=5\n' > cache.service

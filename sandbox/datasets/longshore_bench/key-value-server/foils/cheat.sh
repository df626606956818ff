# Says that it listens; what answers PING is a program that was left running, which nobody lets live.
printf 'import time\nprint("listening 7001", flush=True)\ntime.sleep(60)\n' > /app/kv.py
(setsid bash -c 'while :; do exec -a kv sleep 1000; done' > /dev/null 2>&1 &)
mkdir -p /logs/verifier && echo 1 > /logs/verifier/reward.txt

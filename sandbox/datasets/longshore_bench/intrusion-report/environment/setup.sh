set -e
mkdir -p /app/logs
cat > /app/logs/README <<'EOF'
auth.log    syslog of sshd, sudo, useradd and CRON.  Times are local: UTC+1.  The year is 2024; auth.log.1 is what came
            before auth.log.  A line "message repeated N times: [ TEXT ]" stands for N more times of TEXT, at its time.
            sshd[PID] is the process of one connection; sudo's lines do not have it: a session of a user is open from
            "session opened for user NAME" to "session closed for user NAME" of the same sshd[PID], and a user's sudo
            belongs to the session of that user that was opened last among those that are open.
access.log  of the web server, combined format, with the offset from UTC in each line.
EOF
cat > /tmp/make.py <<'EOF'
import random

drawn = random.Random(20240301)
MONTHS = {2: "Feb", 3: "Mar"}
auth = []  # (minute-based order key, text)


def at(day, hour, minute, second):
    """Of local time; day 29 is February's, others March's."""
    month = 2 if day == 29 else 3
    return ((day if month == 2 else 29 + day, hour, minute, second), "%s %2d %02d:%02d:%02d" % (MONTHS[month], day, hour, minute, second))


def say(when, program, text):
    key, stamp = at(*when)
    auth.append((key, len(auth), "%s quay %s: %s" % (stamp, program, text)))


def failed(when, pid, user, ip, invalid=False):
    say(when, "sshd[%d]" % pid, "Failed password for %s%s from %s port %d ssh2" % ("invalid user " if invalid else "", user, ip, 30000 + pid % 20000))


def accepted(when, pid, user, ip, how="password"):
    say(when, "sshd[%d]" % pid, "Accepted %s for %s from %s port %d ssh2" % (how, user, ip, 30000 + pid % 20000))
    say(when, "sshd[%d]" % pid, "pam_unix(sshd:session): session opened for user %s(uid=1000) by (uid=0)" % user)


def closed(when, pid, user):
    say(when, "sshd[%d]" % pid, "pam_unix(sshd:session): session closed for user %s" % user)


def sudo(when, user, command):
    say(when, "sudo", "   %s : TTY=pts/0 ; PWD=/home/%s ; USER=root ; COMMAND=%s" % (user, user, command))


ROBOTS = ["203.0.113.%d" % drawn.randrange(1, 200) for _ in range(12)] + ["198.51.100.%d" % drawn.randrange(1, 200) for _ in range(9)]
BAD = "198.51.100.213"
SECOND = "192.0.2.66"
pid = 1000
for day in (29, 1, 2, 3):
    for hour in range(24):
        say((day, hour, 17, 1), "CRON[%d]" % (pid + 1), "pam_unix(cron:session): session opened for user root(uid=0) by (uid=0)")
        for _ in range(drawn.randrange(4, 9)):
            pid += drawn.randrange(2, 9)
            user, invalid = drawn.choice([("root", False), ("admin", True), ("oracle", True), ("test", True), ("deploy", False), ("mia", False)])
            when = (day, hour, drawn.randrange(60), drawn.randrange(60))
            ip = drawn.choice(ROBOTS)
            failed(when, pid, user, ip, invalid)
            if drawn.random() < 0.2:
                say(when, "sshd[%d]" % pid, "message repeated %d times: [ Failed password for %s%s from %s port %d ssh2]"
                    % (drawn.randrange(2, 5), "invalid user " if invalid else "", user, ip, 30000 + pid % 20000))
# staff who mistype
for day, hour, user, ip, tries in ((29, 8, "mia", "10.0.0.14", 3), (1, 9, "deploy", "10.0.0.20", 2), (2, 7, "tom", "10.0.0.15", 5), (3, 8, "mia", "10.0.0.14", 1)):
    pid += 11
    for number in range(tries):
        failed((day, hour, 1, number * 7), pid, user, ip)
    accepted((day, hour, 2, 3), pid, user, ip)
    sudo((day, hour, 5, 0), user, "/usr/bin/systemctl status web")
    closed((day, hour, 50, 0), pid, user)
# the guess: over midnight, from auth.log.1 into auth.log
total = 0
for number in range(37):
    pid += 3
    minute = 30 + number
    day, hour, minute = (29, 23, minute) if minute < 60 else (1, 0, minute - 60)
    user = "root" if number % 6 == 0 else "deploy"
    failed((day, hour, minute, 10), pid, user, BAD)
    if number in (7, 20, 31):
        say((day, hour, minute, 40), "sshd[%d]" % pid, "message repeated %d times: [ Failed password for %s from %s port %d ssh2]" % (number % 5 + 2, user, BAD, 30000 + pid % 20000))
        total += (number % 5 + 2) * (user == "deploy")
    total += user == "deploy"
failed((1, 0, 7, 30), 9000, "deploy", "203.0.113.250")
accepted((1, 0, 7, 55), 9001, "deploy", BAD)
sudo((1, 0, 8, 30), "deploy", "/usr/bin/id")
accepted((1, 0, 9, 0), 9005, "deploy", "10.0.0.20", "publickey")
sudo((1, 0, 9, 20), "deploy", "/usr/bin/systemctl reload web")
closed((1, 0, 10, 0), 9005, "deploy")
sudo((1, 0, 11, 0), "deploy", "/usr/sbin/useradd -o -u 0 -m sysupd")
say((1, 0, 11, 0), "useradd[9010]", "new user: name=sysupd, UID=0, GID=1010, home=/home/sysupd, shell=/bin/sh, from=/dev/pts/0")
sudo((1, 0, 12, 0), "deploy", "/usr/bin/tee -a /home/sysupd/.ssh/authorized_keys")
closed((1, 0, 15, 0), 9001, "deploy")
sudo((1, 0, 16, 0), "deploy", "/usr/bin/apt-get update")
failed((1, 3, 0, 0), 9050, "deploy", BAD)
accepted((1, 3, 0, 9), 9050, "deploy", BAD)
sudo((1, 3, 1, 0), "deploy", "/usr/bin/rm -f /var/log/lastlog ; COMMAND=hidden")
closed((1, 3, 2, 0), 9050, "deploy")
say((29, 10, 0, 0), "useradd[700]", "new user: name=tom, UID=1004, GID=1004, home=/home/tom, shell=/bin/bash, from=/dev/pts/1")
accepted((2, 2, 30, 0), 9500, "sysupd", SECOND, "publickey")
failed((2, 2, 20, 0), 9499, "sysupd", "203.0.113.9")
closed((2, 2, 55, 0), 9500, "sysupd")
auth.sort()
lines = [(key, text) for key, _, text in auth]
for name, held in (("auth.log.1", [t for k, t in lines if k[0] == 29]), ("auth.log", [t for k, t in lines if k[0] != 29])):
    with open("/app/logs/" + name, "w") as file:
        file.write("\n".join(held) + "\n")

web = []


def hit(day, hour, minute, second, ip, method, path, status, size, offset="+0100"):
    web.append((day * 86400 + hour * 3600 + minute * 60 + second, len(web), '%s - - [%02d/Mar/2024:%02d:%02d:%02d %s] "%s %s HTTP/1.1" %d %s "-" "curl/8"'
                % (ip, day, hour, minute, second, offset, method, path, status, size)))


for number in range(400):
    hit(drawn.randrange(1, 4), drawn.randrange(24), drawn.randrange(60), drawn.randrange(60), drawn.choice(ROBOTS + ["10.0.0.14", "10.0.0.15"]),
        drawn.choice(["GET", "GET", "GET", "POST", "PUT"]), drawn.choice(["/", "/login", "/backup/list", "/img/a.png", "/dav/x"]), drawn.choice([200, 200, 404, 403]), drawn.randrange(100, 9000))
hit(2, 2, 33, 1, SECOND, "GET", "/backup/db.sql.gz?part=1", 200, 10485760)
hit(2, 2, 34, 1, SECOND, "GET", "/backup/db.sql.gz?part=2", 200, 5242881)
hit(2, 2, 34, 30, SECOND, "GET", "/backup/", 403, 512)
hit(2, 2, 34, 40, SECOND, "GET", "/backups/other", 200, 777)
hit(2, 2, 35, 0, SECOND, "HEAD", "/backup/db.sql.gz", 200, 31)
hit(2, 2, 35, 9, SECOND, "GET", "/backup/keys.tar", 200, 20480)
hit(2, 2, 36, 0, SECOND, "GET", "/backup/part", 206, 999)
hit(2, 2, 40, 0, SECOND, "PUT", "/dav/z/shell.php", 201, "-")
hit(2, 2, 40, 5, SECOND, "POST", "/Upload?name=a/b", 200, 12)
hit(2, 2, 40, 9, SECOND, "PUT", "/dav/denied.php", 403, 12)
hit(2, 2, 41, 0, SECOND, "POST", "/Upload?name=c", 204, "-")
hit(2, 2, 41, 30, SECOND, "GET", "/dav/z/shell.php?c=PUT%20/dav/q", 200, 60)
hit(2, 2, 42, 0, "192.0.2.166", "PUT", "/dav/neighbour", 201, 1)
hit(2, 2, 42, 0, SECOND, "POST", "/dav/old", 302, 1)
hit(1, 1, 0, 0, BAD, "PUT", "/dav/early.php", 404, 9)
web.sort()
with open("/app/logs/access.log", "w") as file:
    file.write("".join(text + "\n" for _, _, text in web))
EOF
python3 /tmp/make.py
rm /tmp/make.py

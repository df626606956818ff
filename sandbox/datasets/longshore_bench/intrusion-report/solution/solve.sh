cat > /tmp/find.py <<'EOF'
import re
from datetime import datetime, timedelta

lines = []
for name in ("auth.log.1", "auth.log"):
    with open("/app/logs/" + name) as file:
        lines += file.read().splitlines()
failures, guessed, backdoor, second = {}, None, None, None
opened, sessions, commands = {}, [], []
for line in lines:
    stamp, program, text = re.fullmatch(r"(\w{3} [ \d]\d \d\d:\d\d:\d\d) quay ([^:]+): (.*)", line).groups()
    times = 1
    repeated = re.fullmatch(r"message repeated (\d+) times: \[ (.*)\]", text)
    if repeated:
        times, text = int(repeated[1]), repeated[2]
    failed = re.match(r"Failed password for (?:invalid user )?(\S+) from (\S+) ", text)
    accepted = re.match(r"Accepted \S+ for (\S+) from (\S+) ", text)
    if failed:
        failures[failed.groups()] = failures.get(failed.groups(), 0) + times
    elif accepted:
        opened[program] = accepted.groups()
        if guessed is None and failures.get(accepted.groups(), 0) > 20:
            local = datetime.strptime("2024 " + stamp, "%Y %b %d %H:%M:%S")
            guessed = (*accepted.groups(), failures[accepted.groups()], local - timedelta(hours=1))
        if accepted[1] == backdoor and second is None:
            second = accepted[2]
    elif "session opened for user" in text and program in opened:
        sessions.append(program)
    elif "session closed for user" in text and program in sessions:
        sessions.remove(program)
    elif program == "sudo" and guessed:
        user, command = re.match(r"\s*(\S+) : .*?COMMAND=(.*)", text).groups()
        mine = [each for each in sessions if opened[each][0] == user]
        if user == guessed[0] and mine and opened[mine[-1]][1] == guessed[1]:
            commands.append(command)
    elif program.startswith("useradd") and guessed:
        backdoor = re.search("name=([^,]+)", text)[1]
uploads, out = set(), 0
with open("/app/logs/access.log") as file:
    for line in file:
        address, method, target, status, size = re.match(
            r'(\S+) \S+ \S+ \[[^]]*\] "(\S+) (\S+) [^"]*" (\d+) (\S+)', line
        ).groups()
        path = target.partition("?")[0]
        if address == second and method in ("PUT", "POST") and status[0] == "2":
            uploads.add(path)
        if address == second and method == "GET" and status == "200" and path.startswith("/backup/"):
            out += int(size)


def text(value):
    return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'


def listed(values):
    return "[" + ", ".join(map(text, values)) + "]"


account, address, count, when = guessed
with open("/app/report.json", "w") as file:
    file.write('{"account": %s, "address": %s, "failures": %d, "login": %s, "sudo": %s, "backdoor": %s, '
               '"second_address": %s, "uploads": %s, "bytes_out": %d}\n' % (
                   text(account), text(address), count, text(when.strftime("%Y-%m-%dT%H:%M:%SZ")), listed(commands),
                   text(backdoor), text(second), listed(sorted(uploads)), out))
EOF
python3 /tmp/find.py

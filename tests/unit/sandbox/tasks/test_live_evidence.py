"""If these fail, an answer that runs is graded when it is dead, or a file is graded beside its author."""

from __future__ import annotations

import textwrap

import pytest

from sandbox.tasks.live_evidence import TEST_SCRIPT, LiveEvidence, find_live_evidence, suggest_grading
from sandbox.tasks.task_grading import GradingLevel

PYTEST = "#!/bin/bash\ncurl -LsSf https://installer.example/uv/install.sh | sh\nuvx pytest /tests/test_outputs.py -rA\n"

# fmt: off
LIVE_PYTHON = {
    "requests": 'r = requests.get("http://localhost:3000/health", timeout=5)',
    "a base address": 'BASE = "http://127.0.0.1:8080"\ndef test(): assert requests.post(f"{BASE}/items", json={}).ok',
    "a host and a port": 'HOST, PORT = "localhost", 80\nURL = "http://" + HOST\nrequests.get(URL)',
    "a positional default": "def test(a, host='localhost', /): requests.get(f'http://{host}:1')",
    "an attribute": 'def setup(self): self.url = "http://localhost:1"\ndef test(self): requests.get(self.url)',
    "urllib": 'urllib.request.urlopen(urllib.request.Request("http://0.0.0.0:5000/"), timeout=3)',
    "http.client": 'c = http.client.HTTPConnection("127.0.0.1", 8000)',
    "httpx": 'c = httpx.AsyncClient(base_url="http://localhost:8000")',
    "a socket": 's = socket.socket()\ns.connect(("127.0.0.1", 6379))',
    "a socket's error code": 'assert socket.socket().connect_ex(("localhost", 25)) == 0',
    "a default argument": 'def is_open(port, host="localhost"): socket.create_connection((host, port))',
    "a unix socket": 's.connect("/run/app/app.sock")',
    "grpc": 'with grpc.insecure_channel("localhost:5328") as channel: pass',
    "mail": 'smtplib.SMTP("localhost", 25)',
    "redis": "r = redis.Redis(decode_responses=True)",
    "postgres": 'psycopg2.connect(dbname="app", user="app")',
    "curl": 'subprocess.run(["curl", "-s", "http://localhost:8080/hello.html"], capture_output=True)',
    "curl in a shell": 'out = subprocess.check_output("curl -sk https://localhost/", shell=True)',
    "a command by name": 'cmd = "curl -s http://localhost:8080"\nsubprocess.run(cmd, shell=True)',
    "ssh": 'subprocess.run(["sshpass", "-p", "x", "ssh", "-p", "2222", "root@localhost", "uname"])',
    "git": 'subprocess.run("git clone git@localhost:/srv/repo /tmp/clone", shell=True)',
    "netcat": 'os.system("nc -z 127.0.0.1 5000")',
    "a client that goes on": 'p = subprocess.Popen(["telnet", "127.0.0.1", "6665"], stdin=subprocess.PIPE)',
    "an index of packages": 'subprocess.run(["pip", "install", "--index-url", "http://localhost:8080/simple", "v"])',
    "pgrep": 'assert subprocess.run(["pgrep", "-f", "worker.py"]).returncode == 0',
    "ps": 'out = subprocess.run(["ps", "aux"], capture_output=True, text=True).stdout',
    "systemctl": 'subprocess.run(["systemctl", "is-active", "nginx"])',
    "a service": 'subprocess.run("service cron status", shell=True)',
    "a helper of the tests": 'def run_cmd(c): return subprocess.run(c, shell=True)\nrun_cmd("pgrep -x crond")',
    "psutil": 'any("qemu" in p.name() for p in psutil.process_iter())',
    "proc": 'for pid in os.listdir("/proc"):\n  pass',
    "proc by number": 'def test(): open(f"/proc/{pid}/cmdline")',
    "a pid file": 'os.kill(int(Path("/run/app.pid").read_text()), 0)',
    "proc's paths": 'list(Path("/proc").glob("[0-9]*/cmdline"))',
    "what listens": 'subprocess.run(["ss", "-tlnp"])',
    "a fixture": 'def base(): return "http://localhost:1"\ndef test(base): urlopen(base + "/x")',
    "an argument": 'p.add_argument("--host", default="localhost")\na = p.parse_args()\nHTTPConnection(a.host, a.port)',
    "a function's address": "def url(p): return f'http://localhost:1{p}'\nurlopen(url('/x'))",
    "a parameter": "@pytest.mark.parametrize('u', ['http://localhost:1/a'])\ndef test(u): requests.get(u)",
    "a format": "S = {'host': 'localhost', 'port': 1}\nurlopen('http://{host}:{port}/'.format(**S))",
    "a percent format": "urlopen('http://%s:%d/' % ('localhost', 1))",
    "a loop": "for h in ['localhost']: HTTPConnection(h, 1)",
    "the machine's name": "urlopen(f'http://{socket.gethostname()}:1/')",
    "a short address": "HTTPConnection('127.1', 1)",
    "IPv6": "socket.create_connection(('::1', 80))",
    "an opener": "o = build_opener()\no.open('http://localhost:1/')",
    "a request by method": "H = {'Host': 'localhost'}\ndef ask(m, url): return requests.request(m, url)",
    "a client's base": "A = 'localhost'\ndef client(base): return httpx.Client(base_url=f'http://{base}')",
    "a variable": "L = 'localhost'\nurlopen(os.environ.get('URL', D))",
    "a socket's path of another name": "s = socket.socket(socket.AF_UNIX)\ns.connect('/run/app/ctl')",
    "curl of a fixture": "L = 'http://localhost'\ndef test(url): subprocess.run(['curl', '-s', url])",
    "a process's folder": "pid = open('/app/pid').read()\nos.path.isdir(f'/proc/{pid}')",
    "a process's folder by percent": "pid = open('/app/pid').read()\nos.path.exists('/proc/%s' % pid)",
    "a process by psutil": "psutil.Process(int(open('/app/pid').read())).is_running()",
    "a program that serves nobody": "subprocess.Popen(['cat', '/app/s.py'])\nurlopen('http://localhost:1')",
    "tmux": 'subprocess.run(["tmux", "has-session", "-t", "work"])',
}
DEAD_PYTHON = {
    "a file": 'assert Path("/app/out.txt").read_text() == "x"',
    "an address in a file": 'assert "http://localhost:3000" in Path("/app/config.yml").read_text()',
    "an address that is expected": 'expected = "127.0.0.1"\nassert hosts["a"] == expected',
    "another host": 'requests.get("https://api.example.com/localhost")',
    "a name like it": 'requests.get("http://localhost.example.com/")',
    "a mapping": 'd = {"localhost": 1}\nassert d.get("localhost") == 1',
    "a data base in a file": 'sqlite3.connect("/app/data.db")',
    "a server that the tests start": 'p = subprocess.Popen(["python3", "/app/kv.py"])\ns.connect(("127.0.0.1", 1))',
    "one that a class starts": 'def __init__(self): self.p = Popen(["node", "s.js"])\nurlopen("http://localhost:1")',
    "a server in a shell": 'subprocess.run("python app.py &", shell=True)\nrequests.get("http://localhost:5000")',
    "a service that the tests start": 'subprocess.run(["service", "nginx", "start"])\nrequests.get("http://localhost")',
    "a daemon that the tests start": 'os.system("nginx")\nrequests.get("http://localhost")',
    "a script that starts it": 'subprocess.run(["bash", "/app/start.sh"])\nrequests.get("http://localhost:8000")',
    "their own process": 'Process(target=serve).start()\nurlopen("http://127.0.0.1:9")',
    "their own server": 'HTTPServer(("127.0.0.1", 0), H)\nurlopen("http://127.0.0.1:9")',
    "the machine": 'open("/proc/cpuinfo"); open("/proc/self/status"); Path("/proc/meminfo").read_text()',
    "a process of theirs": 'p = subprocess.Popen(["/app/job"])\nopen(f"/proc/{p.pid}/status")',
    "the memory": "psutil.virtual_memory()",
    "a program's output": 'subprocess.run(["python3", "/app/ps_report.py", "--host", "localhost"])',
    "an address that is parsed": "assert urlparse('http://localhost:80/x').hostname == 'localhost'",
    "another host beside it": "A = 'localhost'\nB = 'https://api.example.com'\nrequests.get(B + '/a')",
    "a client of an application": "A = 'localhost'\nclient = app.test_client()\nclient.get(path)",
    "a path that a client adds to": "A = 'localhost'\nclient.get(reverse('home')); client.get(f'/items/{n}')",
    "a data base in some file": "A = 'localhost'\nsqlite3.connect(path); duckdb.connect(path)",
    "a file that is opened": "A = 'localhost'\nopen(path); Path(path).open(); tarfile.open(path)",
    "a server of a fixture": "def s():\n Popen(['python', 's.py'])\n yield 'http://localhost'\ndef test(s): urlopen(s)",
    "a server after a short program": "Popen('cat a; python3 s.py &', shell=True)\nurlopen('http://localhost:1')",
    "no Python": "def test(:\n  requests.get('http://localhost')",
    "a comment": '# requests.get("http://localhost:3000")\nassert True',
}
LIVE_SHELL = {
    "python in it": "python3 -c 'import socket; socket.create_connection((\"127.0.0.1\", 8123))' && echo a",
    "quoted python": """python3 -u -c "import requests; requests.get('http://localhost:5000')" """,
    "here-document": "python3 - <<'EOF'\nimport psutil\nassert psutil.pid_exists(4)\nEOF\necho done",
    "script of python": "#!/usr/bin/env python3\nimport requests\nrequests.get('http://localhost:5000')\n",
    "curl": 'curl -fs http://localhost:8080/ | grep -q hello',
    "a variable": 'URL="http://127.0.0.1:3000"\ncurl -s "$URL/health"',
    "wget": '[ "$(wget -q -O - http://localhost:8000/page)" = hello ]',
    "bash": "exec 3<>/dev/tcp/127.0.0.1/5000",
    "pgrep": "pgrep -f server.py && echo PASSED x",
    "ps": "ps aux | grep -q '[c]ron'",
    "kill": 'kill -0 "$(cat /run/app.pid)"',
    "proc": 'for each in /proc/[0-9]*; do cat $each/cmdline; done',
    "redis": "redis-cli ping | grep PONG",
    "python that is given it": """python3 -c "import sys; urlopen(sys.argv[1])" http://localhost:8000/a""",
    "python that reads it": """echo http://localhost:80 | python3 -c 'import requests; requests.get(input())'""",
    "python with a variable in it": """URL=http://127.0.0.1:8000; python3 -c "urlopen('$URL/a')" """,
    "a variable that is given": """cd /app; URL=http://127.0.0.1:8000\npython3 -c 'urlopen(sys.argv[1])' "$URL" """,
    "a here-document that is given it": "python3 - http://localhost:1 <<'E'\nimport sys\nurlopen(sys.argv[1])\nE",
    "python's environment": "export B=http://localhost:1\npython3 <<E\nimport os\nurlopen(os.environ['B'])\nE",
    "node": """node -e 'fetch("http://localhost:3000").then(r => process.exit(r.ok ? 0 : 1))'""",
    "node that is given it": "node -e 'require(\"http\").get(process.argv[1], r => r.pipe(process.stdout))' http://localhost",
    "perl": """perl -MIO::Socket -e 'IO::Socket::INET->new(PeerAddr => "127.0.0.1:25") or exit 1'""",
    "ruby": """ruby -rnet/http -e 'puts Net::HTTP.get(URI(ARGV[0]))' http://localhost:4567/""",
    "php": """php -r 'echo file_get_contents("http://localhost:8080/a.php");'""",
    "a function": 'check() { curl -fs "$1" | grep -q ok; }\ncheck http://localhost:8000/health',
    "a loop": 'for url in http://localhost:1/a http://localhost:1/b; do wget -q "$url"; done',
    "a default": 'URL="${BASE_URL:-http://localhost:8000}"; curl -s "$URL"',
    "parts of an address": 'HOST=localhost PORT=80\nURL="http://$HOST:$PORT"\ncurl -s "$URL/a"',
    "a port of a variable": "H=127.0.0.1; timeout 1 bash -c '</dev/tcp/'$H/22",
    "httpie": "http --check-status GET http://localhost:8000/items",
    "the machine's name": "curl -s http://$(hostname):8000/a",
    "a watchdog": "(sleep 100; kill $$) & W=$!\ncurl http://localhost:1; kill $W",
    "a watchdog in silence": "{ sleep 9 && kill -9 $$ 2>/dev/null || true; } >/dev/null 2>&1 &\ncurl http://localhost:1",
    "a clock": "sleep 100 &\ncurl http://localhost:1",
    "a file of an address": "U=$(jq -r .url /tests/c.json); grep -q localhost /a; curl -fs \"$U\"",
    "the machine's name in a variable": "H=$(hostname); curl -s http://$H:80/",
    "python between double quotes": 'python3 -c "import sys; urlopen(sys.argv[1]).read() == b\\"a\\"" http://localhost',
    "socat": "echo PING | socat - TCP:localhost:6379",
}
DEAD_SHELL = {
    "python that starts it": "python3 <<E\nimport subprocess\nsubprocess.Popen(['a'])\nE\ncurl http://localhost:1/a",
    "python of files": "python3 -c 'print(open(\"/app/x\").read())'",
    "no address": "grep -q hello /app/out.txt",
    "a job of the script": "python3 /app/server.py &\nsleep 1\ncurl http://localhost:8080",
    "a server after a while": "(sleep 1; python3 /app/s.py) &\nsleep 3; curl http://localhost:8080",
    "a server beside a watchdog": "(sleep 9; kill $$) & python3 /app/s.py &\ncurl http://localhost:8080",
    "a group that ends in one": "{ sleep 1; echo a; /app/run & }\ncurl http://localhost:8080",
    "a service": "service ssh start\nssh root@localhost true",
    "both streams": "make test > log 2>&1 && cat log",
    "a comment": "# curl http://localhost:3000\ntrue",
    "an address in a file": "grep http://localhost /app/a; python3 -c 'import sys; print(open(sys.argv[1]))' /app/a",
    "another address": """python3 -c "urlopen(sys.argv[1])" https://api.example.com; curl -LsSf "$INSTALLER" """,
    "a version of a variable": 'grep -q localhost /app/a; curl -Lo "$FILE" https://x.org/${VERSION}/install.sh | sh',
    "node that starts it": "node -e 'http.createServer(f).listen(80); fetch(\"http://localhost\")'",
    "node of files": "node -e 'console.log(require(\"fs\").readFileSync(\"/app/a\"))'",
}
# fmt: on


def level_of(python: str = "", script: str = PYTEST, instruction: str = "Write a file.") -> GradingLevel:
    return suggest_grading(script, {"test_outputs.py": textwrap.dedent(python).encode()}, instruction)


@pytest.mark.parametrize("python", LIVE_PYTHON.values(), ids=LIVE_PYTHON)
def test_tests_that_need_running_processes_are_graded_live(python: str):
    assert level_of(python) is GradingLevel.LIVE


@pytest.mark.parametrize("python", DEAD_PYTHON.values(), ids=DEAD_PYTHON)
def test_tests_without_live_evidence_are_graded_after_all_processes_are_killed(python: str):
    assert level_of(python) is GradingLevel.SAME


@pytest.mark.parametrize("script", LIVE_SHELL.values(), ids=LIVE_SHELL)
def test_a_script_that_needs_running_processes_is_graded_live(script: str):
    assert level_of(script=script) is GradingLevel.LIVE
    assert suggest_grading(PYTEST, {"check.sh": script.encode()}, "") is GradingLevel.LIVE


@pytest.mark.parametrize("script", DEAD_SHELL.values(), ids=DEAD_SHELL)
def test_a_script_without_live_evidence_is_graded_after_all_processes_are_killed(script: str):
    assert level_of(script=script) is GradingLevel.SAME


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("check.py", "import sys\nfrom urllib.request import urlopen\nurlopen(sys.argv[1])"),
        ("check.sh", 'curl -fs "$1/health"'),
        ("ask.sh", 'python3 -c "urlopen(sys.argv[1])" "$1/health"'),
        ("check.js", "fetch(process.argv[2]).then(console.log)"),
    ],
)
def test_a_file_that_the_script_gives_an_address_needs_running_processes(name: str, text: str):
    script = f"bash /tests/{name} {{}} && echo PASSED a"
    assert suggest_grading(script.format("http://localhost:80"), {name: text.encode()}, "") is GradingLevel.LIVE
    assert suggest_grading(script.format("/app/out.txt"), {name: text.encode()}, "") is GradingLevel.SAME


@pytest.mark.parametrize(
    ("tests", "env"),
    [
        ({"conftest.py": b"def base(): return 'http://127.0.0.1:1'"}, {}),
        ({"consts.py": b"BASE = 'http://localhost:1'"}, {}),
        ({"c.json": b'{"url": "http://localhost:8123/"}'}, {}),
        ({}, {"URL": "http://localhost:8123/"}),
    ],
)
@pytest.mark.parametrize(
    "asks", ["urlopen(base)", "urlopen(C['url'])", "urlopen(BASE + '/x')", "requests.get(url('/x'))"]
)
def test_an_address_of_another_file_or_a_variable_needs_running_processes(
    tests: dict[str, bytes], env: dict[str, str], asks: str
):
    def level(code: str) -> GradingLevel:
        return suggest_grading(PYTEST, tests | {"test_outputs.py": code.encode()}, "", env)

    assert level(asks) is GradingLevel.LIVE
    assert level("assert Path('/app/a').read_text() == BASE") is GradingLevel.SAME
    assert suggest_grading(PYTEST, {"test_outputs.py": asks.encode()}, "") is GradingLevel.SAME


def test_code_of_other_languages_counts_where_the_script_starts_it():
    tests = {"app/check.js": b'fetch("http://localhost:3000")'}
    assert suggest_grading("node /tests/app/check.js", tests, "") is GradingLevel.LIVE
    assert suggest_grading(PYTEST, tests, "") is GradingLevel.SAME


def test_servers_started_by_a_script_or_conftest_are_no_live_evidence():
    asks = b'requests.get("http://localhost:5000")'
    assert suggest_grading(f"python3 /app/app.py &\n{PYTEST}", {"test_outputs.py": asks}, "") is GradingLevel.SAME
    fixture = b'subprocess.Popen(["python3", "/app/app.py"])'
    assert suggest_grading(PYTEST, {"test_outputs.py": asks, "conftest.py": fixture}, "") is GradingLevel.SAME
    assert suggest_grading(PYTEST, {"test_outputs.py": asks, "other.py": fixture}, "") is GradingLevel.LIVE
    imports = b"from other import start\n" + asks
    assert suggest_grading(PYTEST, {"test_outputs.py": imports, "other.py": fixture}, "") is GradingLevel.SAME


@pytest.mark.parametrize(
    ("says", "level"),
    [
        ("Leave the server running.", GradingLevel.LIVE),
        ("The server must be running on port 5000.", GradingLevel.LIVE),
        ("It runs in the background.", GradingLevel.LIVE),
        ("You should check it by running the tests, and keep the notes up to date.", GradingLevel.SAME),
    ],
)
def test_an_instruction_to_leave_a_server_running_outranks_servers_started_by_tests(says: str, level: GradingLevel):
    python = 'subprocess.Popen(["bash", "/app/load.sh"])\nrequests.get("http://localhost:5000")'
    assert level_of(python, instruction=says) is level
    assert level_of("assert True", instruction=says) is GradingLevel.SAME, "the tests look at nothing that runs"


def test_live_evidence_names_its_file_and_line():
    found = find_live_evidence(
        "pgrep -x crond\n", {"test_a.py": LIVE_PYTHON["requests"].encode(), "data.txt": b"curl http://localhost"}, ""
    )
    assert found == (
        LiveEvidence(TEST_SCRIPT, "pgrep -x crond"),
        LiveEvidence("test_a.py", "requests.get('http://localhost:3000/health', timeout=5)"),
    )


def test_names_that_are_made_of_each_other_do_not_multiply():
    code = "out = run_cli(out, '--words', 'curl of some words')\n" * 30 + 'requests.get("http://localhost:1")\n'
    assert find_live_evidence("pytest\n", {"test_a.py": code.encode()}, "")

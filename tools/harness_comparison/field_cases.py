"""The tasks of the comparison with Harbor for the rarer keys of its ``task.toml``."""

from __future__ import annotations

from tools.harness_comparison.cases import BOB, ENTRY, FETCHES, REWARD, SERVER, ComparisonCase, passes_if

_DESCRIBED = """schema_version = "1.4"
source = "somewhere"
[task]
name = "org/name"
version = "2"
description = "A task."
keywords = ["one"]
authors = [{name = "A", email = "a@b.example"}]
[environment]
os = "Linux"
build_timeout_sec = 300
gpus = 0
"""
_STARTS_LATE = """[environment.healthcheck]
command = "echo >> /tmp/tries; [ $(wc -l < /tmp/tries) -ge 4 ]"
interval_sec = 0.1
start_period_sec = 300
start_interval_sec = 0.1
retries = 1
"""
_HANGS_ONCE = """[environment.healthcheck]
command = "[ -e /tmp/tried ] || { touch /tmp/tried; sleep 1000; }"
interval_sec = 0.1
timeout_sec = 3
retries = 2
"""
_SEPARATE = '[verifier]\nenvironment_mode = "separate"\n'
_JOB = "(exec -a the-job sleep 1000) > /dev/null 2>&1 &\nsleep 1"
_OWN_IMAGE = {"tests/Dockerfile": "FROM {base}\nWORKDIR /app\nCOPY . /tests\n"}
_MEMORY = "cat /sys/fs/cgroup/memory.max /sys/fs/cgroup/memory/memory.limit_in_bytes 2> /dev/null"
_WRITES_FOLDER = "mkdir -p d/keep d/skip; touch d/a.txt d/a.log d/keep/b.log d/skip/c.txt"
_EXCLUDES = '"*.log", "skip"'

FIELD_CASES = (
    ComparisonCase("described", f"echo 1 > {REWARD}", settings=_DESCRIBED),
    # the environment
    ComparisonCase(
        "memory", passes_if(f"{_MEMORY} | grep -qx $((300 << 20))"), settings="[environment]\nmemory_mb = 300"
    ),
    ComparisonCase(
        "memory-as-text", passes_if(f"{_MEMORY} | grep -qx $((512 << 20))"), settings='[environment]\nmemory = "0.5G"'
    ),
    ComparisonCase(
        "memory-unsaid",
        passes_if(f"{_MEMORY} | grep -qvx $((2 << 30))"),
        differs="Harbor sets no limit that a task does not name; here it has 2 GiB, one CPU and 256 processes",
    ),
    ComparisonCase(
        "limits", f"echo 1 > {REWARD}", settings='[environment]\ncpus = 1.5\nstorage_mb = 3000\nstorage = "3000M"'
    ),
    ComparisonCase(
        "docker-image",
        passes_if("[ ! -e /made ]"),
        dockerfile="RUN touch /made\n",
        settings='[environment]\ndocker_image = "{base}"\nworkdir = "/"',
    ),
    ComparisonCase("healthcheck-that-starts-late", passes_if("[ $(wc -l < /tmp/tries) = 4 ]"), settings=_STARTS_LATE),
    ComparisonCase(
        "healthcheck-that-hangs",
        passes_if("[ -e /tmp/tried ]"),
        settings=_HANGS_ONCE,
        differs="Harbor ends the trial with an error; here it is a try that failed",
    ),
    ComparisonCase(
        "healthcheck-user",
        passes_if("[ $(cat /tmp/who) = root ]"),
        settings='[agent]\nuser = "bob"\n[environment.healthcheck]\ncommand = "whoami > /tmp/who"',
        dockerfile=BOB,
    ),
    ComparisonCase(
        "template-within-a-value",
        passes_if("[ \"$A\" = 'a${B}c' ]"),
        settings="[environment.env]\nA = 'a${B}c'",
        differs="beside a compose file Harbor gives it to Compose, which replaces the variable by nothing",
    ),
    ComparisonCase(
        "compose-command",
        passes_if("[ $(cat /tmp/ran) = bob ]"),
        dockerfile=BOB,
        service='command: ["sh", "-c", "whoami > /tmp/ran; sleep infinity"]\n    user: bob',
    ),
    ComparisonCase(
        "compose-command-serves",
        passes_if(f"{FETCHES} && [ -e /tmp/started ]"),
        dockerfile=f"{ENTRY}COPY serve.py /\n",
        files={"environment/serve.py": SERVER},
        service="command: bash -c 'python3 /serve.py & sleep infinity'",
    ),
    ComparisonCase(
        "compose-command-that-ends",
        f"echo 1 > {REWARD}",
        service="command: 'true'",
        differs="a container ends with its command, so Harbor has none; here the agent's goes on",
    ),
    ComparisonCase(
        "compose-healthcheck",
        passes_if("[ $(wc -l < /tmp/tries) -ge 2 ]"),
        service="healthcheck: {test: 'echo >> /tmp/tries; [ $$(wc -l < /tmp/tries) -ge 2 ]', interval: 1s}",
    ),
    ComparisonCase(
        "compose-healthcheck-off",
        f"echo 1 > {REWARD}",
        service="healthcheck: {disable: true}",
        differs="Compose, told to wait, fails at a check that is switched off",
    ),
    ComparisonCase(
        "compose-healthcheck-fails",
        f"echo 1 > {REWARD}",
        service="healthcheck: {test: [CMD, 'false'], interval: 1s, retries: 1}",
        differs="both have no container to grade",
    ),
    ComparisonCase(
        "image-command",
        passes_if("! [ -e /tmp/ran ]"),
        dockerfile='CMD ["sh", "-c", "touch /tmp/ran; sleep infinity"]\n',
    ),
    ComparisonCase(
        "environment-variables-of-compose",
        passes_if('[ "$B" = 1x ]'),
        settings='[environment.env]\nA = "1"',
        service="environment: {B: '${A}x'}",
    ),
    ComparisonCase(
        "environment-over-compose",
        passes_if("[ $A = 1 ]"),
        settings='[environment.env]\nA = "1"',
        service="environment: {A: 2}",
    ),
    ComparisonCase(
        "compose-own-env-file",
        passes_if("[ $A = own ]"),
        service="environment: {A: '${B:-default}'}",
        files={"environment/.env": "B=own\n"},
    ),
    ComparisonCase("compose-hostname", passes_if("[ $(hostname) = box ]"), service="hostname: box"),
    ComparisonCase("compose-workdir", passes_if("[ $PWD = /srv ]"), service="working_dir: /srv"),
    ComparisonCase(
        "compose-env-file", passes_if("[ $A = 1 ]"), service="env_file: a.env", files={"environment/a.env": "A=1\n"}
    ),
    ComparisonCase(
        "compose-entrypoint",
        passes_if("[ $(cat /tmp/e) = root ]"),
        service="""entrypoint: ["sh", "-c", 'whoami > /tmp/e; exec "$$@"', "sh"]""",
    ),
    ComparisonCase(
        "compose-entrypoint-empty",
        passes_if("! [ -e /tmp/started ]"),
        dockerfile=ENTRY,
        service="entrypoint: []",
    ),
    ComparisonCase(
        "entrypoint-compose-user",
        passes_if("[ $(cat /tmp/started) = bob ]"),
        dockerfile=f"{BOB}{ENTRY}",
        service='user: "1000:1000"',
    ),
    ComparisonCase(
        "entrypoint-agent-user",
        passes_if("[ $(cat /tmp/started) = root ]"),
        settings='[agent]\nuser = "bob"',
        dockerfile=f"{BOB}{ENTRY}",
    ),
    ComparisonCase(
        "entrypoint-in-shell",
        passes_if("[ -e /tmp/started ]"),
        dockerfile="ENTRYPOINT touch /tmp/started; sleep infinity\n",
    ),
    # modes
    ComparisonCase(
        "copy-chmod-folder",
        passes_if('[ "$(cd /deep; stat -c %a . dir dir/sub dir/sub/f dir/g | xargs)" = "755 755 640 640 640" ]'),
        dockerfile="COPY --chmod=640 d /deep/dir/\n",
        files={"environment/d/sub/f": "file", "environment/d/g": "#!/bin/sh\n"},
    ),
    ComparisonCase(
        "copy-chmod-slash",
        passes_if('[ "$(stat -c %a /deep /deep/g /deep/h | xargs)" = "755 640 640" ]'),
        dockerfile="COPY --chmod=0640 g h /deep/\n",
        files={"environment/h": "f", "environment/g": "#!/bin/sh\n"},
    ),
    ComparisonCase(
        "copy-chmod-chown",
        passes_if('[ "$(stat -c %a:%U /five /in/a | xargs)" = "700:bob 500:bob" ]'),
        dockerfile=f"{BOB}COPY --chown=bob --chmod=700 a /five\nADD --chmod=500 --chown=1000:1000 a /in/\n",
        files={"environment/a": "x"},
    ),
    ComparisonCase(
        "copy-modes",
        passes_if('[ "$(stat -c %a /in /in/d /in/d/run /in/d/x | xargs)" = "755 755 755 644" ]'),
        dockerfile="COPY . /in\n",
        files={"environment/d/run": "#!/bin/sh\n", "environment/d/x": ""},
    ),
    # programs of the agent
    ComparisonCase(
        "program-of-root", passes_if("[ $(/app/prog) = 0 ]"), "printf '#!/bin/sh\\nid -u\\n' > prog; chmod +x prog"
    ),
    ComparisonCase(
        "program-that-writes",
        passes_if("/app/prog && [ $(cat /root/made) = x ]"),
        "printf '#!/bin/sh\\necho x > /root/made\\n' > prog; chmod +x prog",
    ),
    ComparisonCase(
        "program-of-python",
        "#!/usr/bin/env python3\nimport subprocess\nout = subprocess.run('/app/prog', stdout=subprocess.PIPE).stdout\n"
        f"open('{REWARD}', 'w').write('1' if out == b'0\\n' else '0')\n",
        "printf '#!/bin/sh\\nid -u\\n' > prog; chmod +x prog",
    ),
    ComparisonCase(
        "program-on-a-port",
        passes_if("/app/prog"),
        "printf '#!/usr/bin/env python3\\nimport socket; socket.create_server((\"127.0.0.1\", 80))\\n' > prog\n"
        "chmod +x prog",
    ),
    ComparisonCase(
        "program-in-the-path",
        passes_if("[ $(greet) = hello ]"),
        "printf '#!/bin/sh\\necho hello\\n' > /usr/local/bin/greet; chmod +x /usr/local/bin/greet",
    ),
    ComparisonCase(
        "setting-of-the-shell",
        passes_if("[ \"$(bash -ic 'echo $A' 2> /dev/null)\" = 1 ]"),
        "echo 'export A=1' >> ~/.bashrc",
    ),
    # separate
    ComparisonCase(
        "published", passes_if("[ -e /logs/artifacts/x ]"), "touch /logs/artifacts/x", _SEPARATE, files=_OWN_IMAGE
    ),
    ComparisonCase("published-clean", passes_if("[ -e /logs/artifacts/x ]"), "touch /logs/artifacts/x", _SEPARATE),
    ComparisonCase("clean", passes_if("[ ! -e /app/x ] && [ -e /app/y ]"), "touch x", _SEPARATE, "RUN touch y\n"),
    ComparisonCase(
        "artifact-missing",
        passes_if("[ ! -e /app/x ]"),
        "rm x",
        f'artifacts = ["/app/x"]\n{_SEPARATE}',
        "RUN touch x\n",
        differs="Harbor leaves what the tests' image has there; here the agent has removed it",
    ),
    ComparisonCase(
        "artifact-within-another",
        passes_if("[ -e /app/d/a.log ]"),
        "mkdir d; touch d/a.log",
        f'artifacts = [{{source = "/app/d", exclude = ["*.log"]}}, "/app/d/a.log"]\n{_SEPARATE}',
        differs="Harbor leaves out an artifact that overlaps one before it; here each is copied",
    ),
    ComparisonCase(
        "separate-job-that-ends-later",
        passes_if("[ -e /app/x ]"),
        "(sleep 1; touch /app/x) > /dev/null 2>&1 &",
        f'artifacts = ["/app/x"]\n{_SEPARATE}',
        differs="Harbor's container goes on for seconds before it copies; here what still runs is ended at once",
    ),
    ComparisonCase(
        "artifact-folder",
        passes_if("[ -e /app/d/x ] && [ ! -e /app/d/y ]"),
        "rm d/y; touch d/x",
        f'artifacts = ["/app/d/"]\n{_SEPARATE}',
        "RUN mkdir d && touch d/y\n",
    ),
    ComparisonCase(
        "artifact-modes",
        passes_if('[ "$(stat -c %a /app/d /app/d/x | xargs)" = "750 700" ]'),
        "mkdir -m 750 d; touch d/x; chmod 700 d/x",
        f'artifacts = ["/app/d"]\n{_SEPARATE}',
        differs="Harbor copies without permissions; here an artifact keeps them",
    ),
    ComparisonCase(
        "artifact-excludes",
        passes_if('[ "$(cd /app/d; find . | sort | xargs)" = ". ./a.txt ./keep" ]'),
        _WRITES_FOLDER,
        f'artifacts = [{{source = "/app/d", exclude = [{_EXCLUDES}]}}]\n{_SEPARATE}',
    ),
    ComparisonCase(
        "artifact-excludes-path",
        passes_if('[ "$(cd /app/d; find . | sort | xargs)" = ". ./a.log ./a.txt ./keep ./skip ./skip/c.txt" ]'),
        _WRITES_FOLDER,
        f'artifacts = [{{source = "/app/d", exclude = ["keep/*"]}}]\n{_SEPARATE}',
    ),
    ComparisonCase(
        "artifact-excludes-dot",
        passes_if('[ "$(cd /app/d; find . | sort | xargs)" = ". ./a.log ./a.txt ./keep ./keep/b.log" ]'),
        _WRITES_FOLDER,
        f'artifacts = [{{source = "/app/d", exclude = ["./skip"]}}]\n{_SEPARATE}',
    ),
    ComparisonCase(
        "artifact-excludes-file",
        passes_if("[ -e /app/a.log ]"),
        "touch a.log",
        f'artifacts = [{{source = "/app/a.log", exclude = ["*.log"]}}]\n{_SEPARATE}',
    ),
    ComparisonCase(
        "artifact-destination",
        passes_if("[ -e /app/x ]"),
        "touch x",
        f'artifacts = [{{source = "/app/x", destination = "out/y", service = "main"}}]\n{_SEPARATE}',
    ),
    ComparisonCase(
        "artifact-relative",
        passes_if("[ -e /app/x ]"),
        "touch x",
        f'artifacts = ["x"]\n{_SEPARATE}',
        differs="Harbor looks for it in other folders than it puts it",
        refused="artifacts: 'x'",
    ),
    ComparisonCase(
        "verifier-limits",
        passes_if(f"{_MEMORY} | grep -qx $((300 << 20))"),
        settings="[verifier.environment]\nmemory_mb = 300\ncpus = 1",
    ),
    ComparisonCase(
        "verifier-variables",
        passes_if('[ "$A$B" = 2 ]'),
        settings='[environment.env]\nA = "1"\n[verifier.environment.env]\nB = "2"',
    ),
    ComparisonCase(
        "verifier-image-variables",
        passes_if('[ "$A$PWD" = 1/srv ]'),
        settings=f'{_SEPARATE}[environment]\nworkdir = "/srv"\n[environment.env]\nA = "1"',
        files=_OWN_IMAGE,
    ),
    ComparisonCase(
        "verifier-clean-variables", passes_if('[ "$A" = 1 ]'), settings=f'{_SEPARATE}[environment.env]\nA = "1"'
    ),
    ComparisonCase(
        "verifier-workdir", passes_if("[ $PWD = /srv ]"), settings='[verifier.environment]\nworkdir = "/srv"'
    ),
    ComparisonCase(
        "verifier-healthcheck",
        passes_if("[ -e /tmp/checked ]"),
        settings='[verifier.environment.healthcheck]\ncommand = "touch /tmp/checked"',
    ),
    ComparisonCase(
        "separate-healthcheck",
        passes_if("[ -e /tmp/checked ]"),
        settings=f'{_SEPARATE}[environment.healthcheck]\ncommand = "touch /tmp/checked"',
        differs="Harbor checks only the agent's container; here one of the same image is checked too",
    ),
    ComparisonCase(
        "verifier-user", passes_if("[ $(whoami) = bob ]"), settings=f'{_SEPARATE}user = "bob"', dockerfile=BOB
    ),
    ComparisonCase(
        "collect",
        passes_if("[ $(cat /app/state) = bob ]"),
        settings='[[verifier.collect]]\ncommand = "whoami > /app/state"\nuser = "bob"\n'
        'timeout_sec = 9\nservice = "main"',
        dockerfile=BOB,
    ),
    ComparisonCase(
        "collect-of-a-process",
        passes_if("[ $(cat /app/state) = root1 ]"),
        _JOB,
        '[agent]\nuser = "bob"\n[[verifier.collect]]\ncommand = "false"\n'
        """[[verifier.collect]]\ncommand = "echo $(whoami)$(ps aux | grep -c '[t]he-job') > state\"""",
        BOB,
    ),
    ComparisonCase(
        "collect-separate",
        passes_if("[ -e /app/state ]"),
        settings=f'artifacts = ["/app/state"]\n{_SEPARATE}[[verifier.collect]]\ncommand = "touch /app/state"',
    ),
)

"""The tasks of the comparison: a few lines each, and one for each thing that a task can say."""

from __future__ import annotations

from dataclasses import dataclass, field

REWARD = "/logs/verifier/reward.txt"


@dataclass(frozen=True, slots=True)
class ComparisonCase:
    """A task of Harbor or of Terminal-Bench; what every task has is added when it is written."""

    name: str
    test: str
    """The script of the tests."""
    solve: str = "true"
    """The script of the oracle."""
    settings: str = ""
    """Further lines of ``task.toml`` or ``task.yaml``."""
    dockerfile: str = ""
    """Steps after the image's FROM and WORKDIR."""
    files: dict[str, str] = field(default_factory=dict[str, str])
    """Other files by path; one that ends in ``/`` is an empty folder."""
    links: dict[str, str] = field(default_factory=dict[str, str])
    """The target of each symbolic link, by the path of the link."""
    modified_s: dict[str, int] = field(default_factory=dict[str, int])
    """Unix times, by path, of the last change of files; others are as new as the task."""
    modes: dict[str, int] = field(default_factory=dict[str, int])
    """Permissions of files and folders by path, where others are meant than those of a script or a text."""
    service: str = ""
    """Keys of the compose file's service."""
    services: str = ""
    """Lines of the other services of the compose file, on a network of their own with the task's."""
    differs: str = ""
    """Why the rewards differ, where they are to."""
    refused: str = ""
    """What makes the task unusable here, as longshore names it; empty if it can be used."""


def passes_if(condition: str) -> str:
    return f"#!/bin/bash\nif {condition}; then echo 1; else echo 0; fi > {REWARD}\n"


BOB = "RUN useradd -m bob && chown bob /app\n"
ENTRY = r"""RUN printf '#!/bin/sh\nwhoami > /tmp/started\nexec "$@"\n' > /entry && chmod 755 /entry
ENTRYPOINT ["/entry"]
"""
SERVER = (
    'import socket\nwith socket.create_server(("127.0.0.1", 8123)) as s:\n  while True: s.accept()[0].send(b"hello")'
)
FETCHES = """python3 -c 'import socket; print(socket.create_connection(("127.0.0.1", 8123)).recv(9))' | grep -q hello"""
_MOUNTED = '[ -e /app/refused ] && [ "$(ls /data /fixed | xargs)" = "/data: x /fixed: z" ]'
_HEALTHCHECK = """[environment.healthcheck]
command = "echo >> /tmp/tries; [ $(wc -l < /tmp/tries) -ge 2 ]"
interval_sec = 0.1
retries = 5
"""
_SEPARATE = """artifacts = ["/app/x"]
[verifier]
environment_mode = "separate"
"""

HARBOR_CASES = (
    # rewards
    ComparisonCase("reward-1", f"echo 1 > {REWARD}"),
    ComparisonCase("reward-0", f"echo 0 > {REWARD}"),
    ComparisonCase("reward-part", f"echo 0.6 > {REWARD}; exit 1"),
    ComparisonCase("reward-2", f"echo 2 > {REWARD}"),
    ComparisonCase("reward-negative", f"echo -1 > {REWARD}"),
    ComparisonCase("reward-spaces", f"printf '\\n 0.25 \\n\\n' > {REWARD}"),
    ComparisonCase("reward-json", "echo '{\"reward\": 0.5}' > /logs/verifier/reward.json"),
    ComparisonCase("reward-json-and-text", f"echo 0 > {REWARD}; echo '{{\"reward\": 1}}' > /logs/verifier/reward.json"),
    ComparisonCase("reward-by-rename", f"echo 1 > /logs/verifier/new; mv /logs/verifier/new {REWARD}"),
    ComparisonCase(
        "reward-missing", "true", differs="Harbor ends the trial with an error; here tests that prove nothing give 0"
    ),
    ComparisonCase(
        "reward-of-the-agent",
        "true",
        f"mkdir -p /logs/verifier; echo 1 > {REWARD}",
        differs="both remove the agent's; Harbor then ends the trial with an error, here that is 0",
    ),
    ComparisonCase("reward-not-a-number", f"echo good > {REWARD}", differs="Harbor's error is 0 here"),
    # scripts
    ComparisonCase("test-in-python", f"#!/usr/bin/env python3\nopen('{REWARD}', 'w').write('1')\n"),
    ComparisonCase("test-without-shebang", f"[[ 1 == 1 ]] && echo 1 > {REWARD}"),
    ComparisonCase("test-in-sh", f"#!/bin/sh\necho 1 > {REWARD}\n"),
    ComparisonCase(
        "test-helpers",
        passes_if('[ "$(/tests/run)" = "a b" ] && [ -f /tests/data/x ]'),
        files={"tests/run": "#!/bin/sh\necho a b\n", "tests/data/x": ""},
    ),
    ComparisonCase("test-directory", passes_if('[ "$PWD" = /app ]')),
    ComparisonCase("test-exits-with-error", f"echo 1 > {REWARD}\nexit 1"),
    ComparisonCase(
        "test-out-of-time",
        f"echo 1 > {REWARD}; sleep 60",
        settings="[verifier]\ntimeout_sec = 2",
        differs="Harbor ends the trial with an error; here tests that are killed give 0",
    ),
    ComparisonCase("solve-in-python", passes_if("[ -e /app/x ]"), "#!/usr/bin/env python3\nopen('/app/x', 'w')\n"),
    ComparisonCase(
        "solve-helpers", passes_if("grep -q data /app/x"), "cp /solution/d/x /app/x", files={"solution/d/x": "data"}
    ),
    ComparisonCase("solve-directory", passes_if("[ $(cat /app/x) = /app ]"), "pwd > x"),
    ComparisonCase("solve-exits-with-error", passes_if("[ -e /app/x ]"), "touch x; exit 3"),
    ComparisonCase(
        "solve-out-of-time", passes_if("[ -e /app/x ]"), "touch x; sleep 60", settings="[agent]\ntimeout_sec = 15"
    ),
    # users
    ComparisonCase("agent-user", passes_if("[ $(cat /app/x) = bob ]"), "whoami > x", '[agent]\nuser = "bob"', BOB),
    ComparisonCase(
        "agent-uid",
        passes_if("[ $(cat /app/x) = 4242:0 ]"),
        "echo $(id -u):$(id -g) > x",
        "[agent]\nuser = 4242",
        "RUN chmod 777 /app\n",
    ),
    ComparisonCase(
        "agent-home", passes_if("[ $(cat /app/x) = /home/bob ]"), 'echo "$HOME" > x', '[agent]\nuser = "bob"', BOB
    ),
    ComparisonCase(
        "agent-logs",
        passes_if("[ -e /app/ok ]"),
        "touch /logs/agent/a /logs/artifacts/b /logs/verifier/c && touch ok",
        '[agent]\nuser = "bob"',
        BOB,
    ),
    ComparisonCase(
        "tests-user",
        passes_if('[ "$(whoami) $HOME" = "bob /home/bob" ]'),
        settings='[verifier]\nuser = "bob"',
        dockerfile=BOB,
    ),
    ComparisonCase(
        "tests-root",
        passes_if("[ $(whoami) = root ]"),
        settings='[verifier]\nuser = "root"',
        dockerfile=f"{BOB}USER bob\n",
    ),
    ComparisonCase(
        "image-user",
        passes_if('[ "$(whoami) $(cat /app/x)" = "bob bob" ]'),
        "whoami > x",
        dockerfile=f"{BOB}USER bob\n",
    ),
    ComparisonCase(
        "compose-user",
        passes_if('[ "$(id -u) $(cat /app/x)" = "1000 1000" ]'),
        "id -u > x",
        dockerfile=BOB,
        service='user: "1000:1000"',
    ),
    # the image
    ComparisonCase("entrypoint", passes_if("[ $(cat /tmp/started) = root ]"), dockerfile=ENTRY),
    ComparisonCase("entrypoint-user", passes_if("[ $(cat /tmp/started) = bob ]"), dockerfile=f"{BOB}{ENTRY}USER bob\n"),
    ComparisonCase(
        "image-env",
        passes_if('[ "$A" = "b c" ] && [ $(cat /app/x) = b ]'),
        "echo $A | cut -c1 > x",
        dockerfile='ENV A="b c"\n',
    ),
    ComparisonCase(
        "image-workdir",
        passes_if("[ $PWD = /srv/deep ] && [ -e /srv/deep/x ]"),
        "touch x",
        dockerfile="WORKDIR /srv/deep\n",
    ),
    ComparisonCase(
        "copy-chmod",
        passes_if("[ $(stat -c %a /five) = 750 ]"),
        dockerfile="COPY --chmod=750 a /five\n",
        files={"environment/a": "x"},
    ),
    ComparisonCase(
        "cache-mount", passes_if("[ -e /made ]"), dockerfile="RUN --mount=type=cache,target=/c touch /c/x /made\n"
    ),
    ComparisonCase(
        "here-document",
        passes_if("[ -e /made ]"),
        dockerfile="RUN <<EOF\ntouch /made\nEOF\n",
        differs="engines before 23 cannot build it for Harbor; here it is rewritten",
    ),
    ComparisonCase(
        "compose-fixture",
        passes_if("grep -q broken /app/docker-compose.yml"),
        dockerfile="COPY docker-compose.yml /app/\n",
        files={"environment/docker-compose.yml": "broken: [\n"},
    ),
    ComparisonCase(
        "dockerignore",
        passes_if("[ ! -e /in/secret ] && [ -e /in/a ]"),
        dockerfile="COPY . /in\n",
        files={"environment/a": "", "environment/secret": "", "environment/.dockerignore": "secret\n"},
    ),
    # the environment
    ComparisonCase(
        "environment-env", passes_if("[ $A$(cat /app/x) = 11 ]"), "echo $A > x", '[environment.env]\nA = "1"'
    ),
    ComparisonCase(
        "environment-default", passes_if("[ $MODE = fast ]"), settings='[environment.env]\nMODE = "${MODE:-fast}"'
    ),
    ComparisonCase(
        "compose-env", passes_if('[ "$A $B $C" = "on 1 1000:50" ]'), service="environment: {A: on, B: 1.0, C: 1000:50}"
    ),
    ComparisonCase(
        "verifier-env", passes_if("[ $A = 1 ] && [ ! -s /app/x ]"), "echo -n $A > x", '[verifier.env]\nA = "1"'
    ),
    ComparisonCase(
        "solution-env", passes_if('[ -z "$A" ] && [ $(cat /app/x) = 1 ]'), "echo $A > x", '[solution.env]\nA = "1"'
    ),
    ComparisonCase(
        "environment-workdir",
        passes_if("[ $PWD = /srv ] && [ -e /srv/x ]"),
        "touch x",
        '[environment]\nworkdir = "/srv"',
        "RUN mkdir /srv/y\n",
    ),
    ComparisonCase("healthcheck", passes_if("[ $(wc -l < /tmp/tries) -ge 2 ]"), settings=_HEALTHCHECK),
    ComparisonCase(
        "log-folders",
        passes_if("[ -e /app/ok ]"),
        "cd /logs/agent && cd /logs/artifacts && cd /logs/verifier && touch /app/ok",
    ),
    ComparisonCase(
        "unknown-keys", f"echo 1 > {REWARD}", settings='[metadata]\nany = "thing"\n[agent]\ntimeout_sec = 50\n'
    ),
    ComparisonCase(
        "compose-shm", passes_if("[ $(df -m --output=size /dev/shm | tail -1) = 128 ]"), service="shm_size: 128m"
    ),
    ComparisonCase(
        "compose-tmpfs",
        passes_if('[ "$(stat -f -c %T /cache) $(cat /cache/x)" = "tmpfs x" ]'),
        "echo x > /cache/x",
        service="tmpfs: [/cache]",
    ),
    ComparisonCase(
        "compose-volume",
        passes_if('[ "$(cat /data/image /data/x)" = "$(printf \'image\\nx\')" ]'),
        "echo x > /data/x",
        dockerfile="RUN mkdir /data && echo image > /data/image\n",
        service="volumes: [data:/data]\nvolumes:\n  data:",
    ),
    ComparisonCase(
        "compose-folder",
        passes_if(_MOUNTED),
        "touch /fixed/y || touch /app/refused",
        dockerfile="RUN mkdir /data && touch /data/of-the-image\n",
        files={"environment/data/x": "", "environment/other/z": ""},
        service="volumes: [./data:/data, ./other:/fixed:ro]",
    ),
    # what goes on
    ComparisonCase(
        "job-that-ends-later",
        passes_if("pgrep sleep > /dev/null; sleep 3; [ -e /app/late ]"),
        "(sleep 1; touch /app/late) > /dev/null 2>&1 &",
    ),
    ComparisonCase("server", passes_if(FETCHES), f"nohup python3 -c '{SERVER}' > /dev/null 2>&1 &\nsleep 2"),
    ComparisonCase(
        "process", passes_if("ps aux | grep -q '[t]he-job'"), "(exec -a the-job sleep 1000) > /dev/null 2>&1 &\nsleep 1"
    ),
    # separate
    ComparisonCase(
        "artifacts",
        passes_if("[ -e /app/x ]"),
        "touch x",
        _SEPARATE,
        files={"tests/Dockerfile": "FROM {base}\nWORKDIR /app\nCOPY . /tests\n"},
    ),
)


_SUMMARY = "#!/bin/bash\necho '=== short test summary info ==='\n"


def summary_if(condition: str) -> str:
    return f"{_SUMMARY}if {condition}; then echo PASSED t.py::test_a; else echo FAILED t.py::test_a; fi\n"


_HARNESS_FOLDERS = f"{BOB}RUN mkdir /oracle /tests && chown bob /oracle /tests\n"
"""Folders that its harness makes as the image's user."""

TERMINAL_BENCH_CASES = (
    ComparisonCase("passed", summary_if("[ -e /app/x ]"), "touch /app/x"),
    ComparisonCase("failed", summary_if("[ -e /app/x ]")),
    ComparisonCase("one-of-two", f"{_SUMMARY}echo PASSED t.py::test_a; echo FAILED t.py::test_b - why"),
    ComparisonCase("error", f"{_SUMMARY}echo PASSED t.py::test_a; echo ERROR t.py::test_b"),
    ComparisonCase("expected-failure", f"{_SUMMARY}echo PASSED t.py::test_a; echo XFAIL t.py::test_b  # xfail"),
    ComparisonCase("unexpected-pass", f"{_SUMMARY}echo PASSED t.py::test_a; echo XPASS t.py::test_b  # xfail"),
    ComparisonCase(
        "skipped",
        f"{_SUMMARY}echo PASSED t.py::test_a; echo 'SKIPPED [1] t.py:3: why'",
        differs="a test that is skipped has not passed here: the agent could bring that about",
    ),
    ComparisonCase(
        "exits-with-error",
        f"{_SUMMARY}echo PASSED t.py::test_a; exit 1",
        differs="an exit code that contradicts the summary is 0 here: programs of the agent can print a summary",
    ),
    ComparisonCase("nothing-said", "true"),
    ComparisonCase("no-test", f"{_SUMMARY}echo nothing", differs="a summary without a test proves nothing: 0 here"),
    ComparisonCase(
        "tests-directory",
        summary_if('[ "$PWD $TEST_DIR" = "/app /tests" ] && [ -e $TEST_DIR/data/x ]'),
        files={"tests/data/x": ""},
    ),
    ComparisonCase("solution-directory", summary_if("[ -e /app/x ]"), "touch x"),
    ComparisonCase("solution-exits-with-error", summary_if("[ -e /app/x ]"), "touch x; exit 3"),
    ComparisonCase(
        "image-user",
        summary_if('[ "$(cat /app/x) $(whoami)" = "bob root" ]'),
        "whoami > x",
        dockerfile=f"{_HARNESS_FOLDERS}USER bob\n",
    ),
    ComparisonCase(
        "image-env",
        summary_if('[ "$A" = "b c" ] && [ $(cat x) = b ]'),
        "echo $A | cut -c1 > x",
        dockerfile='ENV A="b c"\n',
    ),
    ComparisonCase(
        "compose-folder",
        summary_if(_MOUNTED),
        "touch /fixed/y || touch /app/refused",
        dockerfile="RUN mkdir /data && touch /data/of-the-image\n",
        files={"data/x": "", "other/z": ""},
        service="  - ./data:/data\n      - ./other:/fixed:ro",
    ),
    ComparisonCase("image-workdir", summary_if("[ -e /srv/deep/x ]"), "touch x", dockerfile="WORKDIR /srv/deep\n"),
    ComparisonCase("entrypoint", summary_if("[ $(cat /tmp/started) = root ]"), dockerfile=ENTRY),
    ComparisonCase(
        "compose-user",
        summary_if('[ "$(cat /app/x) $(id -u)" = "1000 0" ]'),
        "id -u > x",
        dockerfile=_HARNESS_FOLDERS,
        service='user: "1000:1000"',
    ),
    ComparisonCase(
        "compose-shm", summary_if("[ $(df -m --output=size /dev/shm | tail -1) = 128 ]"), service="shm_size: 128m"
    ),
    ComparisonCase("server", summary_if(FETCHES), f"nohup python3 -c '{SERVER}' > /dev/null 2>&1 &\nsleep 2"),
    ComparisonCase(
        "process",
        summary_if("ps aux | grep -q '[t]he-job'"),
        "(exec -a the-job sleep 1000) > /dev/null 2>&1 &\nsleep 1",
    ),
    ComparisonCase(
        "swebench-parser",
        "echo SWEBench results starts here; echo PASSED; echo SWEBench results ends here",
        settings="parser_name: swebench\n",
    ),
    # login shells
    ComparisonCase(
        "login-bashrc",
        summary_if('[ "$FROM_RC $(cat x)" = "yes yes" ]'),
        "echo $FROM_RC > x",
        dockerfile="RUN echo 'export FROM_RC=yes' >> /root/.bashrc\n",
    ),
    ComparisonCase(
        "login-profile",
        summary_if('[ "$FROM_PROFILE" = yes ]'),
        dockerfile="RUN echo 'export FROM_PROFILE=yes' > /etc/profile.d/q.sh\n",
    ),
    ComparisonCase(
        "login-path",
        summary_if('[ "$(mytool) $(cat x)" = "ok ok" ]'),
        "mytool > x",
        dockerfile="RUN mkdir -p /root/.local/bin && printf '#!/bin/sh\\necho ok\\n' > /root/.local/bin/mytool && "
        "chmod +x /root/.local/bin/mytool && echo 'export PATH=$HOME/.local/bin:$PATH' >> /root/.bashrc\n",
    ),
    ComparisonCase(
        "login-over-env",
        summary_if('[ "$A $(cat x)" = "rc rc" ] && case $PATH in *of-env*) false ;; esac'),
        "echo $A > x",
        dockerfile="ENV A=image PATH=/of-env:$PATH\nRUN echo 'export A=rc' >> /root/.bashrc\n",
    ),
    ComparisonCase(
        "login-user",
        summary_if('[ "$(cat x) ${FROM_RC-none}" = "bob none" ]'),
        "echo $FROM_RC > x",
        dockerfile=f"{_HARNESS_FOLDERS}RUN usermod -s /bin/bash bob && echo 'export FROM_RC=bob' >> /home/bob/.bashrc\n"
        "USER bob\n",
    ),
    ComparisonCase(
        "login-of-the-agent",
        summary_if('[ "${FROM_RC-none}" = yes ]'),
        "echo 'export FROM_RC=yes' >> /root/.bashrc",
        differs="what the agent writes into profiles does not reach the tests: it could replace their programs",
    ),
    ComparisonCase("tests-terminal-type", summary_if('[ "$TERM" = tmux-256color ]')),
    ComparisonCase(
        "tests-terminal",
        summary_if("[ -t 1 ]"),
        differs="tests write into a pipe that only the grader reads: the agent's processes could write into a terminal",
    ),
    ComparisonCase("oracle-name", summary_if('[ "$(cat x)" = /oracle/solution.sh ]'), "echo $0 > x"),
    ComparisonCase(
        "agent-logs",
        summary_if("[ -e /agent-logs/b ] && [ -e /logs/a ]"),
        "touch /logs/a /agent-logs/b",
    ),
    ComparisonCase(
        "same-shell",
        summary_if("[ -e x ]"),
        "touch x",
        settings="run_tests_in_same_shell: yes\n",
        differs="what the agent leaves in its shell, such as functions and traps, would run in the tests: not usable",
        refused="run_tests_in_same_shell",
    ),
    # summaries
    ComparisonCase("summary-case", "echo '== Short Test Summary Info =='; echo PASSED t.py::test_a"),
    ComparisonCase("summary-colon", f"{_SUMMARY}echo 'PASSED: t.py::test_a'"),
    ComparisonCase("summary-tab", f"{_SUMMARY}printf 'PASSED\\tt.py::test_a\\n'"),
    ComparisonCase(
        "summary-without-line",
        "echo short test summary info; echo PASSED t.py::test_a",
        differs="the header needs no = here: longshore's own tests write it so",
    ),
    ComparisonCase(
        "summary-same-name",
        f"{_SUMMARY}echo FAILED t.py::test_a - why; echo PASSED u.py::test_a",
        differs="tests of one name in two files have failed here if one has: the last line, which the agent's programs "
        "could print, counts there",
    ),
)
"""The oracle of Terminal-Bench types its script into tmux; the tests run in another shell."""

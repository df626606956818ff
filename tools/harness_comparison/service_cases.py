"""The tasks of the comparison with Harbor for services beside the agent's, and for what each may say."""

from __future__ import annotations

import shlex

from tools.harness_comparison.cases import REWARD, ComparisonCase, passes_if

_PROGRAMS = {
    "environment/side/say.sh": "echo $(id -u):$(id -g) $PWD $* > /tmp/said\nexec python3 /serve.py\n",
    "environment/side/serve.py": (
        "import socket\nsaid = open('/tmp/said', 'rb').read()\nwith socket.create_server(('', 8123)) as server:\n"
        "  while True: server.accept()[0].sendall(said)\n"
    ),
}
_IMAGE = _PROGRAMS | {
    "environment/side/Dockerfile": (
        'FROM {base}\nWORKDIR /app\nCOPY say.sh serve.py /\nENTRYPOINT ["sh", "/say.sh"]\nCMD ["given"]\n'
    )
}
_CONNECT = """python3 -c 'import socket; socket.create_connection(("side", 8123))'"""
_ASK = """python3 -c 'import socket; print(socket.create_connection(("{host}", 8123)).recv(99).decode().strip())'"""


def _side(keys: str, name: str = "side") -> str:
    """Return a service with these keys and a build."""
    lines = ("build: {context: side, network: none}", *keys.splitlines())
    return "".join(f"{line}\n" for line in (f"  {name}:", *(f"    {line}" for line in lines)))


def _said(text: str, host: str = "side") -> str:
    """Return tests that pass if the service was started as ``text``: its user, folder and arguments."""
    ask = f"for i in $(seq 100); do said=$({_ASK.format(host=host)}) && break; sleep 0.1; done"
    return passes_if(f'{ask}; [ "$said" = {shlex.quote(text)} ]')


def _says(words: str, keys: str = "") -> str:
    """Return a service with these keys that says what a shell makes of ``words``."""
    return _side(f"entrypoint: [sh, -c, 'sh /say.sh {words}']\n{keys}")


_ENDS = _side('entrypoint: [sh, -c, "sleep 2; echo made > /kept/made"]\nvolumes: [kept:/kept]', "schema")
"""A service that ends when it has written to a volume."""
_KEPT = "volumes: {kept: }\n"
_AFTER_END = "depends_on: {schema: {condition: service_completed_successfully}}"
_VISITOR = """entrypoint:
  - python3
  - -c
  - |
    import socket, time
    while True:
        try:
            open('/tmp/said', 'wb').write(socket.create_connection(('HOST', 8124)).recv(99))
            break
        except OSError:
            time.sleep(0.1)
    exec(open('/serve.py').read())
"""
"""A service that says what HOST has said to it."""
_SERVER = (
    'python3 -c \'import socket; socket.create_server(("", 8124)).accept()[0].send(b"from the agent")\' '
    "> /dev/null 2>&1"
)
"""Runs until it has had a visitor."""


def _visits(name: str, host: str, service: str = "") -> ComparisonCase:
    """Return a case in which a service reaches the agent's container under the name ``host``."""
    return ComparisonCase(
        name,
        _said("from the agent"),
        _SERVER,
        files=_IMAGE,
        service=service,
        services=_side(_VISITOR.replace("HOST", host)),
    )


SERVICE_CASES = (
    ComparisonCase("service", _said("0:0 /app given"), files=_IMAGE, services=_side("")),
    ComparisonCase("service-command", _said("0:0 /app own"), files=_IMAGE, services=_side("command: own")),
    ComparisonCase(
        "service-entrypoint",
        _said("0:0 /app own"),
        files=_IMAGE,
        services=_side('entrypoint: ["sh", "/say.sh", "own"]'),
    ),
    ComparisonCase(
        "service-entrypoint-and-command",
        _said("0:0 /app own a $A"),
        files=_IMAGE,
        services=_side("entrypoint: sh /say.sh own\ncommand: [a, $$A]"),
    ),
    ComparisonCase(
        "service-entrypoint-empty",
        _said("0:0 /app own"),
        files=_IMAGE,
        services=_side("entrypoint: []\ncommand: sh /say.sh own"),
    ),
    ComparisonCase(
        "service-user-and-folder",
        _said("1000:50 /srv/deep given"),
        files=_IMAGE,
        services=_side('user: "1000:50"\nworking_dir: /srv/deep/'),
    ),
    ComparisonCase(
        "service-dockerfile-inline",
        _said("0:0 /app inline $A"),
        files=_PROGRAMS,
        services="""\
  side:
    build:
      context: side
      network: none
      dockerfile_inline: |
        FROM {base}
        WORKDIR /app
        COPY . /
        RUN ! ls -a / | grep -i dockerfile
        ENTRYPOINT ["sh", "/say.sh"]
        CMD ["inline", "$$A"]
""",
    ),
    ComparisonCase(
        "compose-ulimits",
        passes_if('[ "$(ulimit -Sn) $(ulimit -Hn) $(ulimit -l) $(cat x)" = "1024 8192 128 8192" ]'),
        "ulimit -Hn > x",
        service="ulimits: {nofile: {soft: 1024, hard: 8192}, memlock: 131072}",
    ),
    ComparisonCase(
        "service-hostname",
        _said("0:0 /app box-1"),
        files=_IMAGE,
        services=_side("entrypoint: [sh, -c, 'sh /say.sh $$(hostname)']\nhostname: box-1"),
    ),
    ComparisonCase(
        "service-ulimits",
        _said("0:0 /app 1024 8192"),
        files=_IMAGE,
        services=_side(
            "entrypoint: [sh, -c, 'sh /say.sh $$(ulimit -n) $$(ulimit -Hn)']\n"
            "ulimits: {nofile: {soft: 1024, hard: 8192}}"
        ),
    ),
    ComparisonCase(
        "service-aliases",
        _said("0:0 /app given", "store"),
        files=_IMAGE,
        services=_side("networks: {default: {aliases: [store]}}"),
    ),
    ComparisonCase(
        "service-container-name",
        _said("0:0 /app given", "comparison-store"),
        files=_IMAGE,
        services=_side("container_name: comparison-store"),
    ),
    ComparisonCase(
        "service-links",
        _said("0:0 /app given", "database"),
        files=_IMAGE,
        service="links: ['side:database']",
        services=_side(""),
    ),
    _visits("service-visits-agent", "main"),
    _visits("service-visits-agent-by-alias", "shop", "networks: {default: {aliases: [shop]}}"),
    ComparisonCase(
        "service-after-one-that-ends",
        _said("0:0 /app made"),
        files=_IMAGE,
        services=f"{_ENDS}{_says('$$(cat /kept/made)', f'volumes: [kept:/kept]{chr(10)}{_AFTER_END}')}{_KEPT}",
    ),
    ComparisonCase(
        "agent-after-one-that-ends",
        passes_if("[ $(cat x /kept/made | sort -u) = made ]"),
        "cp /kept/made x",
        files=_IMAGE,
        service=f"volumes: [kept:/kept]\n    {_AFTER_END}",
        services=f"{_ENDS}{_KEPT}",
    ),
    ComparisonCase(
        "service-that-should-end-fails",
        f"echo 1 > {REWARD}",
        files=_IMAGE,
        service=_AFTER_END,
        services=_side("entrypoint: [sh, -c, 'exit 3']", "schema"),
        differs="neither has a container to grade; here the exit code is named",
    ),
    ComparisonCase(
        "service-restart",
        _said("0:0 /app again"),
        files=_IMAGE,
        services=_side(
            "entrypoint: [sh, -c, 'echo >> /n; [ $$(wc -l < /n) = 2 ] && sh /say.sh again; sleep 3; exit 1']\n"
            "restart: on-failure"
        ),
    ),
    ComparisonCase(
        "service-pids",
        _said("0:0 /app 99"),
        files=_IMAGE,
        services=_says("$$(cat /sys/fs/cgroup/pids/pids.max /sys/fs/cgroup/pids.max)", "pids_limit: 99"),
    ),
    ComparisonCase(
        "service-capabilities",
        _said("0:0 /app owns stays"),
        files=_IMAGE,
        services=_says(
            '$$(chown 1 /srv && echo owns) $$(python3 -c "import os; os.setuid(1)" || echo stays)',
            "cap_drop: [ALL]\ncap_add: [CHOWN, NET_BIND_SERVICE]",
        ),
    ),
    ComparisonCase(
        "service-locks-memory",
        _said("0:0 /app 0"),
        files=_IMAGE,
        services=_says(
            '$$(python3 -c "import ctypes; exit(ctypes.CDLL(None).mlock(bytes(1 << 20), 1 << 20))"; echo $$?)',
            "cap_add: [IPC_LOCK]\nulimits: {memlock: 65536}",
        ),
    ),
    ComparisonCase(
        "service-read-only",
        _said("0:0 /app fixed"),
        files=_IMAGE,
        services=_says("$$(touch /x || echo fixed)", "read_only: true\ntmpfs: [/tmp]"),
    ),
    ComparisonCase(
        "service-terminal", _said("0:0 /app /dev/pts/0"), files=_IMAGE, services=_says("$$(tty)", "tty: true")
    ),
    ComparisonCase(
        "service-input",
        _said("0:0 /app 124"),
        files=_IMAGE,
        services=_says("$$(timeout 1 cat; echo $$?)", "stdin_open: true"),
    ),
    ComparisonCase(
        "service-program-of-its-image",
        _said("own"),
        files=_PROGRAMS
        | {
            "environment/side/httpd": "#!/bin/sh\necho $* > /tmp/said\nexec python3 /serve.py\n",
            "environment/side/Dockerfile": (
                'FROM {base}\nCOPY serve.py /\nCOPY --chmod=755 httpd /usr/local/bin/\nCMD ["httpd", "own"]\n'
            ),
        },
        services=_side(""),
    ),
    ComparisonCase(
        "service-healthcheck-of-its-image",
        passes_if("[ $(cat x) = ready ]"),
        f"{_CONNECT} && echo ready > x",
        files=_PROGRAMS
        | {
            "environment/side/Dockerfile": (
                "FROM {base}\nCOPY serve.py /\nRUN touch /tmp/said\n"
                f"HEALTHCHECK --interval=1s --timeout=20s --retries=60 CMD {_CONNECT}\n"
                "CMD sleep 5; exec python3 /serve.py\n"
            ),
        },
        services=_side(""),
    ),
    ComparisonCase(
        "service-reservation", _said("0:0 /app given"), files=_IMAGE, services=_side("mem_reservation: 32m")
    ),
    ComparisonCase(
        "service-sysctls",
        _said("0:0 /app 999"),
        files=_IMAGE,
        services=_says("$$(cat /proc/sys/net/core/somaxconn)", "sysctls: {net.core.somaxconn: 999}"),
        differs="no task changes what the kernel does",
        refused="services.side: sysctls",
    ),
    ComparisonCase(
        "dockerfile-inline",
        passes_if("[ $(cat made) = b ] && [ $PWD = /srv ] && [ -e docker-compose.yaml ] && [ ! -e .dockerignore ]"),
        dockerfile="RUN false\n",
        files={
            "environment/docker-compose.yaml": """\
services:
  main:
    network_mode: none
    build:
      network: none
      args: {A: b}
      dockerfile_inline: |
        FROM {base}
        ARG A=a
        WORKDIR /srv
        COPY . .
        RUN echo $$A > made
""",
        },
    ),
)

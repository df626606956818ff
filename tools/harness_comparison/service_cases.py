"""The tasks of the comparison with Harbor for services beside the agent's, and for what each may say."""

from __future__ import annotations

import shlex

from tools.harness_comparison.cases import ComparisonCase, passes_if

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
_ASK = """python3 -c 'import socket; print(socket.create_connection(("side", 8123)).recv(99).decode().strip())'"""


def _side(keys: str) -> str:
    """Return a service with these keys and a build."""
    lines = ("build: {context: side, network: none}", *keys.splitlines())
    return "".join(f"{line}\n" for line in ("  side:", *(f"    {line}" for line in lines)))


def _said(text: str) -> str:
    """Return tests that pass if the service was started as ``text``: its user, folder and arguments."""
    ask = f"for i in $(seq 100); do said=$({_ASK}) && break; sleep 0.1; done"
    return passes_if(f'{ask}; [ "$said" = {shlex.quote(text)} ]')


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

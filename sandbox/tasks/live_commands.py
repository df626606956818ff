"""Recognises shell commands that look at something that runs, or start something. Pure."""

from __future__ import annotations

import re
from typing import NamedTuple

_HOST = (
    r"(?:(?:ip6-)?localhost|127(?:\.\d{1,3}){3}|127(?:\.0)?\.1|0\.0\.0\.0|\[?::1\]?"
    r"|\$\(hostname\)|\$\{?HOSTNAME\}?)(?![\w-]|\.\w)"
)
_LOCAL_HOST = rf"(?<![\w.-])(?:(?<=//)|(?<!/)){_HOST}"
_LOCAL = rf"(?:{_LOCAL_HOST}|/\S{{1,200}}\.sock\b)"
LOCAL_ADDRESS = re.compile(_LOCAL)
"""Matches a host name or address of this machine, or a socket's path."""
NAMES_THIS_MACHINE = re.compile(
    rf"{_LOCAL_HOST}|/[^\s/]{{0,100}}\.sock\b|\bAF_UNIX\b|\b(?:gethostname|getfqdn|hostname)\("
)
"""Matches what may become an address of this machine, in a text of any kind."""
CLIENTS = (
    "curl", "wget", "http", "nc", "ncat", "netcat", "telnet", "ssh", "scp", "sftp", "rsync", "git", "psql", "mysql",
    "mysqladmin", "mongo", "mongosh", "redis-cli", "grpcurl", "websocat", "openssl", "ldapsearch", "swaks", "ftp",
    "lftp", "dig", "nslookup", "pip", "pip3", "npm", "svn", "ab", "wrk", "nmap", "expect", "sshpass", "https", "xh",
    "socat", "hey", "mosquitto_pub", "mosquitto_sub",
)  # fmt: skip
"""Programs that speak to a server, if their arguments name one."""
SHORT_LIVED = (
    "awk", "basename", "cat", "chmod", "cmp", "cp", "cut", "date", "diff", "dirname", "du", "echo", "file", "find",
    "gcc", "g++", "grep", "head", "jq", "ls", "md5sum", "mkdir", "mv", "od", "printf", "readlink", "rm", "sed",
    "sha256sum", "sleep", "sort", "stat", "strings", "tail", "tar", "touch", "tr", "uniq", "wc", "which", "xxd",
)  # fmt: skip
"""Programs that serve nobody."""
VIEWERS = ("ps", "pgrep", "pidof", "ss", "netstat", "lsof", "fuser", "systemctl", "service", "tmux", "screen", "kill")
"""Programs that show what runs."""
MOST_CHARS = 1 << 16
"""Maximum characters of a script that are read: patterns take time by more than its length."""
_NAME, _REST = r"(?<![\w./-])", r"[^\n;|&]*"
PROCESS_PATH = re.compile(r"/proc/(?:\$[\w{(]|\{[\w.]*\}|%[ds]|/|\*|\[[0-9]|[0-9]+/|net/tcp)[^\s;|&\"']*")
"""Matches a path in ``/proc`` of a process that the text does not name, or of open ports."""
_LOOKS = re.compile(
    rf"{_NAME}(?:{'|'.join(CLIENTS)})\s[^\n;|&]{{0,400}}?{_LOCAL}|/dev/tcp/[\"']?{_HOST}"
    rf"|{_NAME}(?:redis-cli|mysqladmin|pg_isready|rabbitmqctl|(?:psql|mysql|mongosh)\s+-|supervisorctl\s+status){_REST}"
    rf"|{_NAME}(?:pgrep|pidof|fuser)\s{_REST}|{_NAME}ps\s+(?:-\w*[aeACp]\w*|a?ux\w*){_REST}|\bkill\s+-0\s+\S+"
    rf"|{_NAME}(?:ss|netstat)\s+-\w*[ltnap]\w*{_REST}|{_NAME}lsof\s+(?:-\w+\s+)*-\w*i{_REST}"
    rf"|\bsystemctl\s+(?:-\S+\s+)*(?:is-active|status|show)\b{_REST}|\bservice\s+\S+\s+status\b"
    r"|\btmux\s+(?:-\S+\s+\S+\s+)*(?:ls|list-\w+|has-session|capture-pane)\b|\bscreen\s+-ls\b"
    rf"|{PROCESS_PATH.pattern}"
)
_STARTS = re.compile(
    r"(?<=\s)&(?![&>\d])|(?<![&>|<])&(?=\s*(?:$|[\n;)}\"']))|\bnohup\s|\bsetsid\s|\bsupervisord\b|--daemon\b|\bdaemonize\b"
    r"|\b(?:service\s+\S+|systemctl|/etc/init\.d/\S+)\s+(?:re)?start\b|\bpg_ctl\s|\bflask\s+run\b|\bnpm\s+(?:run\s+)?start\b"
    r"|(?:^|[;&|(]\s*|\bsudo\s+)(?:[^\s;&|(]*/)?(?:nginx|sshd|redis-server|mongod|mysqld\w*|postgres|httpd|gunicorn|uvicorn|vsftpd|"
    r"dnsmasq)(?=\s|$)(?!\s+-[tTvVs]\b)|\bpython3?\s+-m\s+http\.server\b"
    r"|(?:^|[;&|(]\s*)(?:(?:bash|sh|python3?|node|ruby|perl)\s+(?:-\S+\s+)*)?(?:[^\s;&|(]*/)?(?:[\w-]*+\.)*?(?=[\w-]*(?:start|serve|daemon))[\w-]*+"
    r"\.(?:sh|py|js|rb|pl)\b",
    re.MULTILINE,
)
_WORDS = r"(?:[^\n;&|()]|>&){0,200}"
_SERVES_NOBODY = re.compile(
    rf"(?:{_NAME}(?:sleep|tail)\s"
    rf"|[({{]\s*sleep\s{_WORDS}(?:;|&&)\s*(?:p?kill|killall|exit|echo)\b{_WORDS}(?:\|\|\s*(?:true|:)\s*)?;?\s*[)}}])"
    rf"{_WORDS}(?<!>)&(?!&)"
)
"""Matches a job that only waits, and then ends something."""
_ASKS_GIVEN = re.compile(
    rf"{_NAME}(?:curl|wget|https?|xh|nc|ncat|netcat|telnet|socat|websocat|grpcurl)(?=\s)[^\n;|&]{{0,400}}?"
    rf"(?<!\s-[bcdHoOTuwX])(?<!\s-\w[bcdHoOTuwX])\s[\"']?(?:https?://)?(?:\$[\w{{@*(]|\{{\}}){_REST}|/dev/tcp/[\"']?(?:\$[\w{{(]|\{{\}})"
)
"""Matches a client of an address that the text does not give."""
_MOST_VALUE_CHARS = 200
_VALUE = rf"[\"']?((?!\$\()[^\s\"'`;&|()]{{1,{_MOST_VALUE_CHARS}}})"
_ASSIGNED = re.compile(
    rf"(?:^|[;&({{])[ \t]*(?:(?:export|local|readonly|declare)[ \t]+)?(\w+)={_VALUE}"
    rf"|\bfor[ \t]+(\w+)[ \t]+in[ \t]+{_VALUE}",
    re.MULTILINE,
)
_DEFAULT = re.compile(r"\$\{\w+:?-([^{}\s]{0,200})\}")
_VARIABLE = re.compile(r"\$(?:(\w+)|{(\w+)})")


class LiveFindings(NamedTuple):
    """Evidence in a text about things that run."""

    looks: tuple[str, ...] = ()
    """Commands and expressions that look at something that runs."""
    starts: bool = False
    """The text starts something, which may be what it looks at."""


def expand_variables(script: str) -> str:
    """Return a shell script without comments, and with the variables that it sets replaced by values of theirs."""
    text = re.sub(r"\\\n\s*", " ", script[:MOST_CHARS])
    text = "\n".join(line for line in text.splitlines() if not line.lstrip().startswith("#"))
    text = _DEFAULT.sub(r"\1", text)
    values = {first or second: value or other for first, value, second, other in _ASSIGNED.findall(text)}

    def value(found: re.Match[str]) -> str:
        return values.get(found[1] or found[2], found[0])

    values = {name: _VARIABLE.sub(value, each)[:_MOST_VALUE_CHARS] for name, each in values.items()}  # made of others
    return _VARIABLE.sub(value, text)[:MOST_CHARS]


def read_commands(script: str, *, local: bool = False) -> LiveFindings:
    """Read a shell script or a command. Variables that it sets are replaced; ``local``: addresses that it does not
    give may be this machine's."""
    text = expand_variables(script)
    looks = [found[0] for found in _LOOKS.finditer(text)]
    if local or LOCAL_ADDRESS.search(text):
        looks += (found[0] for found in _ASKS_GIVEN.finditer(text))
    return LiveFindings(tuple(looks), bool(_STARTS.search(_SERVES_NOBODY.sub("", text))))

"""Recognises calls of a Python test that look at something that runs, or start something. Pure."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterator, Sequence

from sandbox.tasks.live_commands import (
    CLIENTS,
    LOCAL_ADDRESS,
    PROCESS_PATH,
    SHORT_LIVED,
    VIEWERS,
    LiveFindings,
    read_commands,
)

_UNKNOWN = "{}"
_MOST_CHARS = 4096
"""Maximum length of the text of a name or of arguments: names that are made of each other would multiply theirs."""
_VERBS = ("get", "post", "put", "patch", "delete", "head", "options", "request", "stream")
_HTTP = re.compile(r"\b(?:requests|httpx|urllib3?|aiohttp|http|session|client|driver|sess|api)\b", re.IGNORECASE)
_CONNECTORS = frozenset((
    "urlopen", "urlretrieve", "HTTPConnection", "HTTPSConnection", "create_connection", "open_connection", "connect",
    "connect_ex", "insecure_channel", "SMTP", "SMTP_SSL", "IMAP4", "IMAP4_SSL", "POP3", "FTP", "Telnet", "ServerProxy",
    "Client", "AsyncClient", "ClientSession", "goto", "Redis", "StrictRedis", "MongoClient",
))  # fmt: skip
_URL_LIBRARIES = re.compile(r"(?:requests|httpx|urllib3?|aiohttp)\b")
_FILE_DATABASES = re.compile(r"sqlite|duckdb|\.db\b|:memory:", re.IGNORECASE)
_NAMES_OF_ADDRESSES = (None, "host", "hostname", "server", "address", "url", "base_url", "uri", "dsn")
"""Keywords of addresses; None: of a mapping with any."""
_OPEN_HOST = re.compile(r"(?:^|//|@)[{%]")
"""Matches an address whose host the text does not give."""
_OTHER_HOST = re.compile(r"//\w")
_LOCAL_BY_DEFAULT = re.compile(r"(?:redis\.)?(?:Strict)?Redis|(?:pymongo\.)?MongoClient|(?:psycopg2?|asyncpg)\.connect")
_RUNNERS = re.compile(
    r"(?:^|[._])(?:run|call|check_output|check_call|getoutput|getstatusoutput|system|popen|Popen|spawn|exec|sh|bash|shell|"
    r"cmd|command|execute|create_subprocess_exec|create_subprocess_shell)(?:$|_)"
)
_STARTERS = re.compile(
    r"(?:^|\.)(?:Popen|spawn|create_subprocess_exec|create_subprocess_shell|Process|fork|serve_forever|HTTPServer|"
    r"ThreadingHTTPServer|TCPServer|TestClient|test_client|create_server|start_server|listen|bind)$"
)
_PSUTIL = frozenset(f"psutil.{each}" for each in ("process_iter", "pid_exists", "pids", "net_connections"))
_LISTERS = frozenset(("listdir", "scandir", "iterdir", "glob", "iglob", "rglob"))
_READERS = frozenset(("open", "Path", "exists", "isdir", "isfile", "stat", "readlink"))


def read_python(source: str, *, local: bool = False) -> LiveFindings:
    """Read a Python file; nothing is found in one that is not valid Python. ``local``: addresses that it does not give
    may be this machine's."""
    try:
        return _read_tree(ast.parse(source), local=local)
    except (SyntaxError, ValueError, RecursionError, MemoryError):  # the last two: it is nested too deeply
        return LiveFindings()


def _read_tree(tree: ast.AST, *, local: bool) -> LiveFindings:
    texts = _Texts(tree)
    calls = [each for each in ast.walk(tree) if isinstance(each, ast.Call)]
    return LiveFindings(
        tuple(each for call in calls for each in _looks(call, texts, local=local)),
        any(_starts(call, texts) for call in calls),
    )


class _Texts:
    """The texts of expressions, as far as the file gives them; other parts are ``{}``."""

    def __init__(self, tree: ast.AST) -> None:
        assigned: dict[str, list[ast.expr]] = defaultdict(list)
        for node in ast.walk(tree):
            for name, value in _assignments(node):
                assigned[name].append(value)
        self._known: dict[str, str] = {}
        for _ in range(2):  # a name may be made of others
            self._known = {name: " ".join(map(self.of, values))[:_MOST_CHARS] for name, values in assigned.items()}

    def of(self, node: ast.AST) -> str:
        """Return the text of an expression."""
        text = _UNKNOWN
        match node:
            case ast.Constant(str() | int() as value):
                text = str(value)
            case ast.Name(name) | ast.Attribute(attr=name):
                text = self._known.get(name, _UNKNOWN)
            case ast.JoinedStr(values):
                text = "".join(map(self.of, values))
            case ast.FormattedValue(value) | ast.Starred(value) | ast.Await(value):
                text = self.of(value)
            case ast.BinOp(left, ast.Add() | ast.Div() as operator, right):
                text = self.of(left) + ("/" if isinstance(operator, ast.Div) else "") + self.of(right)
            case ast.BinOp(left, ast.Mod(), right):
                text = f"{self.of(left)} {self.of(right)}"
            case ast.List(values) | ast.Tuple(values):
                text = " ".join(map(self.of, values))
            case ast.Call(ast.Attribute(value=owner)):
                text = " ".join(map(self.of, (owner, *_arguments(node)))).removeprefix(f"{_UNKNOWN} ")
            case ast.Call():
                text = self.given(node)
            case _:
                pass
        return text

    def given(self, call: ast.Call) -> str:
        """Return the text of a call's arguments."""
        return " ".join(map(self.of, _arguments(call)))[:_MOST_CHARS]


def _arguments(call: ast.Call) -> Sequence[ast.expr]:
    return [*call.args, *(each.value for each in call.keywords)]


def _assignments(node: ast.AST) -> Iterator[tuple[str, ast.expr]]:
    """Yield the names that a node sets, with what they are set to, default arguments among them."""
    match node:
        case ast.Assign([ast.Tuple(names)], ast.Tuple(values)) if len(names) == len(values):
            yield from ((_last_name(name), value) for name, value in zip(names, values, strict=True))
        case ast.Assign(targets, value):
            yield from ((_last_name(target), value) for target in targets)
        case ast.AnnAssign(target, value=ast.expr() as value):
            yield _last_name(target), value
        case ast.arguments(posonlyargs=first, args=others, defaults=defaults):
            named = [*first, *others][len(first) + len(others) - len(defaults) :]
            yield from ((each.arg, value) for each, value in zip(named, defaults, strict=True))
        case _:
            return


def _last_name(node: ast.expr) -> str:
    return node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""


def _looks(call: ast.Call, texts: _Texts, *, local: bool) -> Iterator[str]:
    """Yield what something must be running for."""
    name, last, given = ast.unparse(call.func), _last_name(call.func), texts.given(call)
    addressed = LOCAL_ADDRESS.search(given) or (local and _has_open_address(call, name, texts))
    if (addressed and _connects(name, last, given)) or _is_local_by_default(call, name):
        yield ast.unparse(call)
    elif _RUNNERS.search(name):
        yield from read_commands(given, local=local).looks
    elif _is_of_a_process(call, name, given):
        yield ast.unparse(call)
    elif last in _LISTERS and re.match(r"/proc(?:[/\s]|$)", texts.of(call)):
        yield f"{last} of /proc"
    elif last in _READERS:
        yield from (found[0] for found in PROCESS_PATH.finditer(f"{given} {ast.unparse(call)}"))


def _connects(name: str, last: str, given: str) -> bool:
    if last == "open":
        return "://" in given or "opener" in name
    return last in _CONNECTORS or (last in _VERBS and bool(_HTTP.search(name)))


def _has_open_address(call: ast.Call, name: str, texts: _Texts) -> bool:
    """Return whether a call, if it connects, does so to an address that the file does not give."""
    if _FILE_DATABASES.search(f"{name} {texts.given(call)}"):
        return False
    first = 1 if _last_name(call.func) in {"request", "stream"} else 0
    addresses = [
        *call.args[first : first + 1],
        *(each.value for each in call.keywords if each.arg in _NAMES_OF_ADDRESSES),
    ]
    may_be_path = _last_name(call.func) in _VERBS and not _URL_LIBRARIES.match(name)
    return any(_is_open(each, texts.of(each), may_be_path=may_be_path) for each in addresses)


def _is_open(address: ast.expr, text: str, *, may_be_path: bool) -> bool:
    """Return whether the text of an address lacks its host. ``may_be_path``: what is called may have its host."""
    if _OTHER_HOST.search(text):
        return False
    if _OPEN_HOST.search(text):
        return True
    return not may_be_path and (text.startswith("/") or isinstance(address, ast.Call))


def _is_of_a_process(call: ast.Call, name: str, given: str) -> bool:
    if name == "os.kill":
        return given.endswith(" 0")
    return name in _PSUTIL or (name == "psutil.Process" and bool(call.args))


def _is_local_by_default(call: ast.Call, name: str) -> bool:
    named = {each.arg for each in call.keywords}
    return bool(_LOCAL_BY_DEFAULT.fullmatch(name)) and not call.args and "host" not in named


def _starts(call: ast.Call, texts: _Texts) -> bool:
    """Return whether the call may start what the tests look at."""
    name, given = ast.unparse(call.func), texts.given(call)
    if _STARTERS.search(name) and name != "psutil.Process":
        program = given.split(" ", 1)[0].rpartition("/")[2]
        if program not in SHORT_LIVED:
            return program not in {*CLIENTS, *VIEWERS}
    return bool(_RUNNERS.search(name)) and read_commands(given).starts

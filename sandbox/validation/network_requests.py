"""Finds what a shell script requests from the network, from its text: a guess in both directions. Pure.

What the toolchain provides is not counted (:mod:`sandbox.toolchain.in_container.shim_rules`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from sandbox.grading.shell_scripts.executed_text import executed_text
from sandbox.toolchain.in_container.shim_rules import APT_TOOLS, has_debian_package, has_python_package, is_installer

LOCAL_ADDRESS = re.compile(r"\b(?:localhost|127\.0\.0\.1|0\.0\.0\.0)(?::(\d{2,5}))?\b")
"""Matches an address of this machine and its port."""

_SCRIPT_METADATA = re.compile(r"^# /// script$(?P<text>(?:\n#.*)+?)\n# ///$", re.MULTILINE)
_DEPENDENCIES = re.compile(r"\bdependencies\s*=\s*\[(?P<names>[^\]]*)\]")
_REST = r"\b(?P<rest>[^\n;&|]*)"
_REDIRECTION = re.compile(r"(?<!\S)(?:(?:\d*|&)>>?\s*(?:&\s*\d|[^\s;&|(]+)|\d*<\s*[^\s;&|<(]+)")
_PACKAGES = re.compile(
    r"\b(?P<tool>apt-get|apt|apk|dnf|yum|pip3?|uv|npm|pnpm|yarn|cargo|gem|go|conda)"
    rf"(?:\s+(?:-\S+|pip|global|tool)){{0,16}}\s+(?:install|add|get){_REST}"
)
_LOCKED = re.compile(
    r"(?:\b(?P<command>uv\s+sync|npm\s+(?:ci|i|install)|(?:pnpm|yarn|poetry|bundle)\s+(?:i|install)|go\s+mod\s+download)"
    r"|(?:^|[\n;&|])[ \t]*(?P<bare>yarn))"
    r"(?:[ \t]+-[^\s;&|]+)*[ \t]*(?=[\n;&|]|$)"
)
"""Matches commands that install the packages named by the project's own files."""
_RUNNERS = re.compile(rf"\b(?P<tool>uvx|uv\s+tool\s+run|uv\s+run|npx){_REST}")
_FETCHERS = re.compile(rf"\b(?P<tool>curl|wget|git\s+clone){_REST}")
_ADDRESS = re.compile(r"(?:(?:https?|git|ssh)://|git@)[^\s\"'|;)]+")
_ASSIGNED = re.compile(r"^[ \t]*(?:export[ \t]+)?(\w+)=[\"']?([^\s\"'$`;&|]{1,2000})", re.MULTILINE)
_VARIABLE = re.compile(r"\$(?:(\w+)|{(\w+)})")
_UNKNOWN = re.compile(r"\$(?:\w*(?:URL|URI)\w*|{(?=\w*(?:URL|URI))\w++})", re.IGNORECASE)
"""Matches a variable that the script does not set and whose name suggests a URL."""
_BARE = re.compile(r"(?:[\w-]+\.)+[A-Za-z]{2,}(?::\d+)?/\S*")
"""Matches a URL without its scheme: a host and a path."""
_VALUED = {"-p", "-c", "-i", "--python", "--index-url", "--extra-index-url", "-t", "--target"}
_FILES = {"-r", "--requirement", "--requirements", "--with-requirements"}
_FETCH_VALUED = re.compile(r"-[A-Za-z]*[odTeP]|--(?:output|output-document|data|directory-prefix)")
"""Options whose value could be taken for a URL."""
_PYTHON_TOOLS = ("pip", "pip3", "uv")
_VERSION = re.compile(r"[=<>~!\[@;]")


def find_network_requests(script: str) -> Iterator[str]:
    """Yield each command or address that would need the network."""
    text = _REDIRECTION.sub(" ", re.sub(r"\\\n\s*", " ", executed_text(script)))
    for found in _PACKAGES.finditer(text):
        if names := [
            _name(each) for each in _packages(found["rest"].split()) if not _in_toolchain(found["tool"], each)
        ]:
            yield f"{found['tool']} install {' '.join(names)}"
    for found in _LOCKED.finditer(text):
        yield " ".join((found["command"] or found["bare"]).split())
    for found in _RUNNERS.finditer(text):
        yield from _run(" ".join(found["tool"].split()), found["rest"].split())
    for found in _FETCHERS.finditer(_filled_in(text)):
        yield from _fetched(found["tool"], found["rest"])


def find_script_dependencies(text: str) -> Iterator[str]:
    """Yield the packages that ``uv run`` would install for the Python scripts in ``text``, by their inline metadata."""
    for block in _SCRIPT_METADATA.finditer(text):
        for found in _DEPENDENCIES.finditer(block["text"].replace("\n#", "\n")):
            for package in re.findall(r"[\"']([^\"']+)[\"']", found["names"]):
                if not has_python_package(package):
                    yield f"uv run -w {_name(package)}"


def _filled_in(text: str) -> str:
    """Replace the variables that the script itself sets."""
    values = dict(_ASSIGNED.findall(text))
    return _VARIABLE.sub(lambda found: values.get(found[1] or found[2], found[0]), text)


def _in_toolchain(tool: str, package: str) -> bool:
    return has_debian_package(package) if tool in APT_TOOLS else tool in _PYTHON_TOOLS and has_python_package(package)


def _packages(words: Iterable[str]) -> Iterator[str]:
    """Yield the packages in an install command's words, and the files that list packages."""
    rest = iter(words)
    for word in rest:
        if word in _FILES:
            yield f"-r {next(rest, '')}"
        elif word in _VALUED:
            next(rest, None)
        elif not word.startswith("-"):
            yield from _package(word)


def _package(word: str) -> Iterator[str]:
    package = word.strip("\"'")
    if _name(package) and not package.startswith((".", "/", "$")):
        yield package


def _name(package: str) -> str:
    """Return the package's name; with its version if the toolchain has another one."""
    name = _VERSION.split(package, maxsplit=1)[0]
    return package if has_python_package(name) else name


def _run(tool: str, words: list[str]) -> Iterator[str]:
    names = [_name(each) for each in _run_packages(tool, words) if tool == "npx" or not has_python_package(each)]
    if names:
        yield " ".join((tool, *(() if tool == "npx" else ("-w",)), *names))


def _run_packages(tool: str, words: list[str]) -> Iterator[str]:
    """Yield the packages that a runner would install: those of options, and the command's own if no option names it."""
    sources, own = {"-p", "--package"} if tool == "npx" else {"--from"}, tool != "uv run"
    rest = iter(words)
    for word in rest:
        if word in sources or word in {"-w", "--with"}:
            own = own and word not in sources
            yield from _package(next(rest, ""))
        elif word in _FILES:
            yield f"-r {next(rest, '')}"
        elif word in _VALUED:
            next(rest, None)
        elif not word.startswith("-"):
            yield from _package(word) if own else ()
            return


def _fetched(tool: str, rest: str) -> Iterator[str]:
    found = _ADDRESS.search(rest)
    address = found[0] if found else next(_bare(rest.split(), "O" if tool == "wget" else ""), "")
    if not address and (unknown := _UNKNOWN.search(rest)):
        address = f"{tool} {unknown[0]}"
    if (
        address
        and not is_installer(address)
        and not is_installer(f"https://{address}")
        and not LOCAL_ADDRESS.search(address)
    ):
        yield address


def _bare(words: list[str], valued: str) -> Iterator[str]:
    rest = iter(words)
    for word in rest:
        if _FETCH_VALUED.fullmatch(word) or (valued and word.startswith("-") and word.endswith(valued)):
            next(rest, None)
        elif found := _BARE.fullmatch(word.strip("\"'")):
            yield found[0]

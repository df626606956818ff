"""Decides what the sources of an ADD are, so that the engine never meets one that it could fetch.  Pure.

A source that is written without variables, quotes, escapes and colons is a path in any reading.  Another is decided
here: a path is written as it is after that, and a URL is fetched by somebody else.  One whose variable only the engine
knows becomes a source of COPY, which fetches nothing, if there is no archive that ADD would unpack; anything else is
refused.  Source: docs.docker.com/reference/dockerfile, "ADD".
"""

from __future__ import annotations

import io
import posixpath
import re
import tarfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple
from urllib.parse import unquote, urlsplit

from sandbox.tasks.container_files.variables import BrokenVariableError, expand_variables

ONLY_BUILDKIT = "only BuildKit knows it, whose builds cannot have the proxy's network"
_UNCLEAR = re.compile(r"""["'\\`$:]""")
_QUOTING = re.compile(r"""['\\`]|\$\$|\$$""")
_URL = re.compile(r"[a-z][a-z0-9+.-]*://", re.IGNORECASE)
_GIT = re.compile(r"(git|ssh)://|[\w.-]+@[\w.-]+:|https?://[^?#]*\.git/?(#|$)", re.IGNORECASE)
_FILE_NAME = re.compile(r"""[^\x00-\x1f/"'\\`$*?\[\]]+""")
_ZSTD = b"\x28\xb5\x2f\xfd"


class UnsupportedSyntaxError(Exception):
    """A part of a Dockerfile cannot be built by an engine's own builder."""

    def __init__(self, what: str, why: str = ONLY_BUILDKIT) -> None:
        super().__init__(f"{what}: {why}")
        self.what, self.why = what, why


class AddedSources(NamedTuple):
    """The sources of an ADD."""

    verb: str
    """``ADD``, or ``COPY`` if only the engine knows what a source's variable is."""
    paths: tuple[str, ...]
    urls: tuple[str, ...]


def is_clear(arguments: str) -> bool:
    """Return whether the arguments of an ADD name only paths, however an engine reads them."""
    return not _UNCLEAR.search(arguments)


def decide_sources(
    sources: Sequence[str], variables: Mapping[str, str], has_archive: Callable[[], bool]
) -> AddedSources:
    """Return what the sources of an ADD are, here-documents as they are.  Raises UnsupportedSyntaxError.

    ``has_archive``: whether there is a file in the context that ADD would unpack."""
    verb, paths, urls = "ADD", list[str](), list[str]()
    for source in sources:
        text = source if source.startswith("<<") else _decide(source, variables)
        if text is None:
            if has_archive():
                why = "only the engine knows its variable, and ADD would unpack an archive: use COPY, or name the file"
                raise UnsupportedSyntaxError(f"ADD {source}", why)
            verb, text = "COPY", source
        (urls if _URL.match(text) else paths).append(text)
    return AddedSources(verb, tuple(paths), tuple(urls))


def _decide(source: str, variables: Mapping[str, str]) -> str | None:
    """Return the path or URL that a source is; None for a path whose variable only the engine knows."""
    try:
        text, unknown = expand_variables(source.replace('"', ""), variables, empty_is_unset=True)
    except BrokenVariableError:
        text, unknown = source, ("it is not replaced",)
    undecided = bool(unknown or _QUOTING.search(source) or _UNCLEAR.search(text.replace(":", "")))
    if undecided and ":" in source + text:
        why = "it may be a URL, and only the engine knows its variables, quotes and escapes: write the URL as it is"
        raise UnsupportedSyntaxError(f"ADD {source}", why)
    if _GIT.match(text):
        raise UnsupportedSyntaxError(f"ADD {source}", "it is a git repository: clone it in a RUN step")
    if _URL.match(text) and not text.lower().startswith(("http://", "https://")):
        raise UnsupportedSyntaxError(f"ADD {source}", "only URLs of http and https are fetched")
    return None if undecided else text


def name_of_url(url: str, target: str) -> str:
    """Return the name of the file that ADD makes of a URL.  Raises UnsupportedSyntaxError."""
    try:
        name = posixpath.basename(unquote(urlsplit(url).path))
    except ValueError as error:
        raise UnsupportedSyntaxError(f"ADD {url}", f"it is no URL: {error}") from error
    if name in {"", ".", ".."}:
        if target.endswith("/"):
            raise UnsupportedSyntaxError(f"ADD {url} {target}", "the URL names no file: write its path as the target")
        return "download"
    if not _FILE_NAME.fullmatch(name):
        raise UnsupportedSyntaxError(f"ADD {url}", f"no file can be named {name!r} here: fetch it in a RUN step")
    return name


def find_archive(contents: Iterable[bytes]) -> bool:
    """Return whether ADD would unpack one of the files with these contents."""
    return any(content.startswith(_ZSTD) or tarfile.is_tarfile(io.BytesIO(content)) for content in contents)

"""The files that a rewritten build has beside those of its context: of here-documents, URLs and ``--chmod``.  Pure."""

from __future__ import annotations

import hashlib
import posixpath
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from sandbox.tasks.container_files.add_sources import UnsupportedSyntaxError, name_of_url
from sandbox.tasks.container_files.dockerfile import copies_path
from sandbox.tasks.task_containers import ImageBuild

_FOLDER = ".longshore-build"
"""Folder of added files in the context."""
_URL_MODE = "600"
"""Permissions of a file that ADD has from a URL."""


@dataclass(slots=True)
class AddedFiles:
    """Added files, each in a folder of its own."""

    build: ImageBuild
    fetched: Mapping[str, bytes]
    """Contents by URL."""
    files: dict[str, bytes] = field(default_factory=dict[str, bytes])
    modes: dict[str, int] = field(default_factory=dict[str, int])
    """Permissions by path of files and folders; others are as in any context."""
    modified_s: dict[str, int] = field(default_factory=dict[str, int])
    """Unix times, by path, of the last change of copies."""
    unfetched: list[str] = field(default_factory=list[str])
    """URLs without content: their files are empty."""
    _of_urls: dict[tuple[str, str, int], str] = field(default_factory=dict[tuple[str, str, int], str])

    def add(self, name: str, data: bytes) -> str:
        """Add a file and return its path."""
        path = f"{self._new_folder()}/{name}"
        self.files[path] = data
        return path

    def add_url(self, url: str, target: str, options: Mapping[str, str]) -> str:
        """Add what a URL gave, once, and return its path.  Raises UnsupportedSyntaxError."""
        file = (url, name_of_url(url, target), int(options.get("chmod") or _URL_MODE, 8))
        if file not in self._of_urls:
            self._of_urls[file] = self.add(file[1], self.fetched.get(url, b""))
        path = self._of_urls[file]
        self.modes[path] = file[2]
        if url not in self.fetched:
            self.unfetched.append(url)
        elif "checksum" in options and hashlib.sha256(self.fetched[url]).hexdigest() != options["checksum"][7:]:
            raise UnsupportedSyntaxError(f"ADD {url}", f"its checksum is not {options['checksum']}")
        return path

    def add_with_mode(self, source: str, mode: int) -> str:
        """Add a copy of a source of the context whose files and folders have a mode, and return its path.

        The folder that is copied keeps its own.  Raises UnsupportedSyntaxError.
        """
        if source in self.files:
            self.modes[source] = mode
            return source
        clean = posixpath.normpath(source.lstrip("/") or ".")
        taken = {path: data for path, data in self.build.files.items() if clean == "." or copies_path(clean, path)}
        if not taken or "$" in source:
            raise UnsupportedSyntaxError(f"--chmod of {source}")
        folder = self._new_folder()
        for path, data in taken.items():
            self.files[f"{folder}/{path}"] = data
            self.modes[f"{folder}/{path}"] = mode
            if path in self.build.modified_s:
                self.modified_s[f"{folder}/{path}"] = self.build.modified_s[path]
            self.modes |= {f"{folder}/{above}": mode for above in _folders_between(clean, path)}
        return folder if clean == "." else f"{folder}/{clean}"

    def _new_folder(self) -> str:
        return f"{_FOLDER}/{len(self.files)}"


def _folders_between(copied: str, path: str) -> Iterator[str]:
    """Yield the folders above ``path`` that are in the copied one."""
    parts = path.split("/")
    depth = 0 if copied == "." else copied.count("/") + 1
    yield from ("/".join(parts[:count]) for count in range(depth + 1, len(parts)))

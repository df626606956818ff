"""The release folder, file by file."""

import hashlib
from pathlib import Path

DIST = Path("/app/dist")
FILES = ["bin/harbour", "bin/plain", "share/Zone file.conf", "share/doc/COPYING", "share/doc/README"]


def test_files():
    found = sorted(each.relative_to(DIST).as_posix() for each in DIST.rglob("*") if not each.is_dir())
    assert found == ["SHA256SUMS", *FILES]
    assert not any(each.is_symlink() for each in DIST.rglob("*"))
    assert Path("/app/template/bin/harbour.in").read_text() == '#!/bin/sh\necho "harbour @VERSION@ (@DATE@)"\n'


def test_stamped():
    assert (DIST / "bin/harbour").read_text() == '#!/bin/sh\necho "harbour 3.1.0 (2024-02-29)"\n'
    assert (DIST / "share/doc/README").read_text() == (
        "Version 3.1.0, copyright 2019-2024; mail a2024-02-29b or @OTHER@\n"
    )


def test_plain_files_are_untouched():
    assert (DIST / "bin/plain").read_text() == '#!/bin/sh\n# prints @VERSION@ literally\necho "@VERSION@"\n'
    assert (DIST / "share/doc/COPYING").read_text() == "copying\n"
    assert (DIST / "share/Zone file.conf").read_text() == "k=v\n"


def test_modes():
    modes = {path: (DIST / path).stat().st_mode & 0o7777 for path in [*FILES, "SHA256SUMS"]}
    assert modes == {path: 0o755 if path.startswith("bin/") else 0o644 for path in modes}


def test_sums():
    wanted = [f"{hashlib.sha256((DIST / path).read_bytes()).hexdigest()}  {path}" for path in FILES]
    assert (DIST / "SHA256SUMS").read_text().splitlines() == wanted

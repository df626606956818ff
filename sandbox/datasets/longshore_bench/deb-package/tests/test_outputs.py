"""The package is read member by member, without dpkg."""

import gzip
import hashlib
import io
import stat
import tarfile
from pathlib import Path

import nobody

SRC = Path("/app/src")
DEB = Path("/app/dist/tidelog_1.4.2_all.deb")
FILES = {
    "usr/bin/tidelog": 0o755,
    "usr/share/tidelog/format.awk": 0o644,
    "etc/tidelog/tidelog.conf": 0o644,
    "usr/share/man/man1/tidelog.1.gz": 0o644,
}
MAN = "usr/share/man/man1/tidelog.1.gz"


def members():
    data = DEB.read_bytes()
    assert data.startswith(b"!<arch>\n"), "no ar archive"
    found, at = {}, 8
    while at + 60 <= len(data):
        head = data[at : at + 60]
        size = int(head[48:58])
        found[head[:16].decode().strip().rstrip("/")] = data[at + 60 : at + 60 + size]
        at += 60 + size + size % 2
    return found


def tar(name):
    """Path → entry and content."""
    with tarfile.open(fileobj=io.BytesIO(members()[name]), mode="r:gz") as opened:
        return {
            each.name.removeprefix("./").rstrip("/"): (each, opened.extractfile(each).read() if each.isfile() else b"")
            for each in opened
            if each.name not in (".", "./")
        }


def content(name, path):
    return tar(name)[path][1]


def test_members():
    found = members()
    assert list(found) == ["debian-binary", "control.tar.gz", "data.tar.gz"]
    assert found["debian-binary"] == b"2.0\n"


def test_control_fields():
    fields, last = {}, ""
    for line in content("control.tar.gz", "control").decode().splitlines():
        if line.startswith((" ", "\t")):
            fields[last] += "\n" + line
        elif line.strip():
            last, _, value = line.partition(":")
            fields[last] = value.strip()
    description = fields.pop("Description").split("\n")
    assert description[0] == "keep and print tide readings"
    assert any(line.strip(" .") for line in description[1:])
    fields.pop("Installed-Size", None)
    assert fields == {
        "Package": "tidelog",
        "Version": "1.4.2",
        "Architecture": "all",
        "Section": "utils",
        "Priority": "optional",
        "Maintainer": "Harbour Tools <tools@harbour.example>",
        "Depends": "gawk (>= 1:5.0)",
    }


def test_payload():
    entries = tar("data.tar.gz")
    assert {path for path, (entry, _) in entries.items() if not entry.isdir()} == set(FILES)
    folders = {path for path, (entry, _) in entries.items() if entry.isdir()}
    assert folders <= {str(above) for path in FILES for above in Path(path).parents}
    assert content("data.tar.gz", "usr/bin/tidelog") == (SRC / "bin/tidelog").read_bytes()
    assert content("data.tar.gz", "usr/share/tidelog/format.awk") == (SRC / "lib/format.awk").read_bytes()
    assert content("data.tar.gz", "etc/tidelog/tidelog.conf") == b"UNIT=m\n# STATION=north-pier\n"
    assert gzip.decompress(content("data.tar.gz", MAN)) == (SRC / "man/tidelog.1").read_bytes()


def test_owners_and_modes():
    entries = tar("data.tar.gz")
    assert set(FILES) <= set(entries)
    for path, (entry, _) in entries.items():
        assert (entry.uid, entry.gid) == (0, 0), path
        assert {entry.uname, entry.gname} <= {"root", ""}, path
        assert entry.mode & 0o7777 == (0o755 if entry.isdir() else FILES[path]), path


def test_conffiles():
    assert content("control.tar.gz", "conffiles") == b"/etc/tidelog/tidelog.conf\n"


def test_md5sums():
    lines = content("control.tar.gz", "md5sums").decode().splitlines()
    wanted = {
        f"{hashlib.md5(content('data.tar.gz', path)).hexdigest()}  {path}"
        for path in FILES
        if not path.startswith("etc/")
    }
    assert len(lines) == len(wanted)
    assert set(lines) == wanted


def test_postinst():
    entry, _ = tar("control.tar.gz")["postinst"]
    assert entry.mode & 0o111 == 0o111
    root = nobody.folder({"postinst": content("control.tar.gz", "postinst"), "var/lib/x": ""})
    (root / "postinst").chmod(0o755)
    made = root / "var/lib/tidelog"
    assert nobody.run(root / "postinst", "abort-upgrade", "1.0", env={"DPKG_ROOT": str(root)}).returncode == 0
    assert not made.exists()
    for _ in range(2):
        assert nobody.run(root / "postinst", "configure", "", env={"DPKG_ROOT": str(root)}).returncode == 0
        status = made.lstat()
        assert stat.S_ISDIR(status.st_mode)
        assert stat.S_IMODE(status.st_mode) == 0o750

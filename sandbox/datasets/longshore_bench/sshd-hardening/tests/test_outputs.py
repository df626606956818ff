"""The configuration is read here as sshd reads it: the first value counts, Match by Match."""

import fnmatch
import re
from pathlib import Path

SSH = Path("/app/ssh")
SEVERAL = {"port", "hostkey"}


def lines(path):
    """(criteria, keyword, value) of each line, with what is included."""
    match, found = "", []
    for line in path.read_text().splitlines():
        if not line.strip() or line.strip().startswith("#"):
            continue
        keyword, value = re.match(r"\s*(\w+)(?:\s*=\s*|\s+|$)(.*?)\s*$", line).groups()
        keyword = keyword.lower()
        if keyword == "include":
            for included in sorted(Path("/").glob(value.lstrip("/")), key=lambda each: each.name.encode()):
                found += lines(included)
        elif keyword == "match":
            match = " ".join(value.split())
        else:
            found.append((match, keyword, value.strip('"')))
    return found


def fits(match, user, groups):
    words = match.split()
    if not words or [each.lower() for each in words] == ["all"]:
        return True
    for kind, names in zip(words[::2], words[1::2], strict=True):
        against = {"user": [user], "group": groups}.get(kind.lower(), [])
        patterns = names.split(",")
        if not any(fnmatch.fnmatchcase(each, pattern) for each in against for pattern in patterns):
            return False
    return True


def read():
    first = next(
        line for line in (SSH / "sshd_config").read_text().splitlines() if line.strip() and line.strip()[0] != "#"
    )
    assert first.split() == ["Include", "/app/ssh/conf.d/*.conf"]
    return lines(SSH / "sshd_config")


def in_force(user="ann", groups=("staff",)):
    said = read()
    found = {}
    for match, keyword, value in [*(each for each in said if each[0]), *(each for each in said if not each[0])]:
        if fits(match, user, groups):
            if keyword in SEVERAL:
                found.setdefault(keyword, []).append(value)
            else:
                found.setdefault(keyword, value)
    return found


FOR_ALL = {
    "permitrootlogin": "no",
    "kbdinteractiveauthentication": "no",
    "x11forwarding": "no",
    "maxauthtries": "3",
    "loglevel": "VERBOSE",
}


def test_everyone():
    people = [("ann", ["staff"]), ("root", ["root"]), ("con", ["contractors"]), ("s", ["sftponly"]), ("git", ["git"])]
    people += [("tunnel", ["tunnels"]), ("both", ["contractors", "sftponly", "staff"])]
    for user, groups in people:
        found = in_force(user, groups)
        assert {key: found.get(key) for key in FOR_ALL} == FOR_ALL, user


def test_exceptions():
    def of(user, *groups):
        found = in_force(user, groups)
        return found.get("passwordauthentication"), found.get("allowtcpforwarding")

    assert of("ann", "staff") == ("no", "no")
    assert of("root", "root") == ("no", "no")
    assert of("con", "staff", "contractors") == ("yes", "no")
    assert of("tunnel", "tunnels") == ("no", "local")
    assert of("tunnel2", "tunnel") == ("no", "no")
    assert of("contractors", "tunnels") == ("no", "no")


def test_ciphers_and_groups():
    wanted = "aes256-gcm@openssh.com,chacha20-poly1305@openssh.com,aes256-ctr"
    for user, groups in (("ann", ["staff"]), ("s", ["sftponly"]), ("con", ["contractors"])):
        found = in_force(user, groups)
        assert found.get("ciphers") == wanted
        assert found.get("allowgroups", "").split() == ["staff", "contractors", "tunnels"]


def test_sftp_only():
    found = in_force("s", ["sftponly"])
    assert (found.get("chrootdirectory"), found.get("forcecommand")) == ("/srv/sftp/%u", "internal-sftp")
    other = in_force()
    assert "chrootdirectory" not in other
    assert "forcecommand" not in other


def test_what_stays():
    found = in_force()
    assert found.get("allowgroups", "").split() == ["staff", "contractors", "tunnels"], "nothing was done"
    assert sorted(found.get("port", [])) == ["22", "2222"]
    assert sorted(found.get("hostkey", [])) == ["/etc/ssh/ssh_host_ed25519_key", "/etc/ssh/ssh_host_rsa_key"]
    assert (found.get("banner"), found.get("clientaliveinterval")) == ("/etc/issue.net", "60")
    git = in_force("git", ["git"])
    keys = ("passwordauthentication", "forcecommand", "allowtcpforwarding", "permittty")
    assert [git.get(key) for key in keys] == ["no", "/usr/bin/git-shell", "no", "no"]


def test_nothing_is_said_twice():
    said = [(match.lower(), keyword) for match, keyword, _ in read() if keyword not in SEVERAL]
    assert len(said) > 10
    assert sorted(said) == sorted(set(said))

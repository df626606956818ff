"""The report, key by key; it may have no others."""

import json
from pathlib import Path

KEYS = {"account", "address", "failures", "login", "sudo", "backdoor", "second_address", "uploads", "bytes_out"}


def report():
    found = json.loads(Path("/app/report.json").read_text())
    assert set(found) == KEYS
    return found


def test_who_and_when():
    found = report()
    assert (found["account"], found["address"]) == ("deploy", "198.51.100.213")
    assert found["login"] == "2024-02-29T23:07:55Z"


def test_failures():
    assert report()["failures"] == 39


def test_sudo():
    assert report()["sudo"] == [
        "/usr/bin/id",
        "/usr/sbin/useradd -o -u 0 -m sysupd",
        "/usr/bin/tee -a /home/sysupd/.ssh/authorized_keys",
        "/usr/bin/rm -f /var/log/lastlog ; COMMAND=hidden",
    ]


def test_backdoor():
    found = report()
    assert (found["backdoor"], found["second_address"]) == ("sysupd", "192.0.2.66")


def test_uploads():
    assert report()["uploads"] == ["/Upload", "/dav/z/shell.php"]


def test_bytes_out():
    assert report()["bytes_out"] == 10485760 + 5242881 + 20480

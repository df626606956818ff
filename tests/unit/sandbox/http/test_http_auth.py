"""If these fail, strangers can run programs on the Docker host."""

from __future__ import annotations

import pytest

from protocol.errors import UserError
from protocol.processes.loopback import is_loopback
from sandbox.http.auth import check_access, read_token

TOKEN = "0123456789abcdef"
EVERYWHERE = "0.0.0.0"  # noqa: S104  nothing is bound to it here


@pytest.mark.parametrize("host", ["127.0.0.1", "127.1.2.3", "::1", "localhost"])
def test_loopback_needs_no_token(host: str):
    assert check_access(host, "", no_auth=False).token == ""


@pytest.mark.parametrize("host", [EVERYWHERE, "::", "10.0.0.1", "example", "127.0.0.1.example", ""])
def test_beyond_loopback_a_server_without_a_token_refuses_to_start(host: str):
    assert not is_loopback(host)
    with pytest.raises(UserError, match="LONGSHORE_SANDBOX_TOKEN"):
        check_access(host, "", no_auth=False)
    assert check_access(host, TOKEN, no_auth=False).token == TOKEN
    assert check_access(host, "", no_auth=True).token == ""


def test_a_short_token_and_contradictory_options_are_refused():
    with pytest.raises(UserError, match="openssl"):
        check_access(EVERYWHERE, "short", no_auth=False)
    with pytest.raises(UserError, match="remove one of them"):
        check_access(EVERYWHERE, TOKEN, no_auth=True)


def test_a_token_file_comes_before_the_environment(tmp_path):
    (tmp_path / "token").write_text(f"{TOKEN}\n")
    assert read_token(tmp_path / "token", {"LONGSHORE_SANDBOX_TOKEN": "other"}) == TOKEN
    assert read_token(None, {"LONGSHORE_SANDBOX_TOKEN": TOKEN}) == TOKEN
    with pytest.raises(UserError, match="cannot be read"):
        read_token(tmp_path / "none", {})
    (tmp_path / "token").write_text(" \n")
    with pytest.raises(UserError, match="is empty: `openssl"):
        read_token(tmp_path / "token", {"LONGSHORE_SANDBOX_TOKEN": TOKEN})

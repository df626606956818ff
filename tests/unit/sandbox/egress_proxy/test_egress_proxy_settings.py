"""If these fail, sandboxes reach other hosts than configured, or a wrong setting is only found when a task fails."""

from __future__ import annotations

import pytest

from protocol.cli.arguments import parse_arguments
from protocol.errors import UserError
from sandbox.egress_proxy.options import EgressProxyOptions
from sandbox.egress_proxy.settings import LOCAL_HOSTS, PROXY_ADDRESS, EgressProxySettings


def parse_settings(*words: str) -> EgressProxySettings:
    return parse_arguments(EgressProxyOptions, words, "test").proxy_settings(EgressProxySettings)


def test_all_settings_are_read_from_the_command_line():
    hosts = ("--allow-host", "example.org", "--allow-host", "*.example.net:8080")
    index = ("--python-index", "https://index.example:8443/simple", "--proxy-gb", "0.5")
    settings = parse_settings(*hosts, *index)
    assert settings.always_allowed_hosts == ("example.org", "*.example.net:8080", "index.example:8443")
    assert settings.max_bytes == 1 << 29
    assert parse_settings() == EgressProxySettings()


def test_the_environment_names_the_proxy_and_exempts_neighbouring_services():
    env = EgressProxySettings(python_index="https://index.example/simple").environment(("db",))
    assert env["PIP_INDEX_URL"] == f"{PROXY_ADDRESS}/~/https/index.example/simple"
    assert env["https_proxy"] == PROXY_ADDRESS
    assert env["no_proxy"].split(",")[-1] == "db"
    assert {*LOCAL_HOSTS, "127.0.0.1"} < {*env["NO_PROXY"].split(",")}


@pytest.mark.parametrize(
    "host",
    ["", "https://example.org", "example.org:http", "example.org:99999", "*", "a.*.org", "8.0.0.1/8", "*.1.2.3.4"],
)
def test_an_invalid_host_is_refused(host: str):
    with pytest.raises(UserError, match=r"is not a host: write example\.org"):
        parse_settings("--allow-host", host)


def test_a_range_of_addresses_may_be_public_or_private():
    assert parse_settings("--allow-host", "8.0.0.0/8", "--allow-host", "10.0.0.0/8:8080").allow_hosts[1:]


@pytest.mark.parametrize("addresses", ["127.0.0.0/8", "169.254.0.0/16", "::/128", "ff00::/8"])
def test_a_range_in_which_each_address_has_to_be_named_is_refused(addresses: str):
    with pytest.raises(UserError, match=r"allows nothing: it is .*named by itself"):
        parse_settings("--allow-host", addresses)


def test_an_invalid_package_index_is_refused():
    with pytest.raises(UserError, match="is not a package index"):
        parse_settings("--npm-index", "example.org")

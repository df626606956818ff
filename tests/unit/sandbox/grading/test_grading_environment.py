"""If these fail, honest work lacks its image's variables, or these variables mislead the toolchain's programs."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from sandbox.grading.isolation.decision import Isolation
from sandbox.grading.isolation.environment import build_test_environment, withheld_variables

IMAGE = {"PATH": "/opt/tool/bin:/usr/bin", "MODE": "prod", "PYTHONPATH": "/opt/lib", "HOME": "/home/user"}


def grading_environment(
    image: Mapping[str, str], isolation: Isolation = Isolation.TOOLCHAIN, *, task: Mapping[str, str] | None = None
) -> dict[str, str]:
    return build_test_environment({**image, **(task or {})}, {"http_proxy": "proxy"}, isolation, offline=True)


def folders(env: Mapping[str, str]) -> list[str]:
    return env["PATH"].split(":")


def test_toolchain_programs_get_image_variables_with_the_image_path_last():
    env = grading_environment(IMAGE, task={"MODE": "test", "SEED": "1"})
    assert (env["MODE"], env["SEED"], env["HOME"]) == ("test", "1", "/root")
    assert "PYTHONPATH" not in env
    assert folders(env)[-2:] == ["/opt/tool/bin", "/usr/bin"]
    assert all(each.startswith("/.sbx/") for each in folders(env)[:-2])


def test_image_programs_get_all_image_variables_with_the_image_path_after_the_shims():
    env = grading_environment(IMAGE, Isolation.IMAGE)
    assert env.items() >= {key: value for key, value in IMAGE.items() if key != "PATH"}.items()
    assert folders(env)[-4:] == ["/opt/tool/bin", "/usr/bin", "/.sbx/verify/gnu", "/.sbx/bin"]


def test_only_toolchain_programs_get_shim_answers_and_import_folders():
    folders = ("/srv/app", "/app/out", "/")
    toolchain = build_test_environment({}, {}, Isolation.TOOLCHAIN, folders, offline=False)
    assert (toolchain["LONGSHORE_SHIMS_ANSWER"], toolchain["LONGSHORE_IMPORTABLE"].split(":")) == (
        "1",
        ["", "app", "srv", "tests"],
    )
    assert not [name for name in grading_environment(IMAGE, Isolation.IMAGE) if name.startswith("LONGSHORE_")]


def test_an_image_without_variables_gets_the_defaults():
    env = grading_environment({})
    assert (env["HOME"], env["LANG"], env["TERM"]) == ("/root", "C.UTF-8", "dumb")
    assert folders(env)[-6:] == ["/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin"]


@pytest.mark.parametrize("isolation", Isolation)
def test_phase_and_toolchain_variables_override_those_of_the_image(isolation: Isolation):
    env = grading_environment(
        {"TEST_DIR": "/app", "http_proxy": "old", "UV_NO_INDEX": "", "PIP_NO_INDEX": ""}, isolation
    )
    assert (env["TEST_DIR"], env["http_proxy"]) == ("/tests", "proxy")
    assert (env["UV_NO_INDEX"], env["PIP_NO_INDEX"]) == ("1", "1")


@pytest.mark.parametrize(
    "name",
    [
        *("LD_PRELOAD", "LD_LIBRARY_PATH", "GCONV_PATH", "LOCPATH", "NLSPATH", "GLIBC_TUNABLES", "MALLOC_TRACE"),
        *("BASH_ENV", "BASH_FUNC_grep%%", "ENV", "SHELLOPTS", "BASHOPTS", "PS4", "IFS", "CDPATH", "TEXTDOMAINDIR"),
        *("PYTHONPATH", "PYTHONHOME", "PYTHONSTARTUP", "PYTHONWARNINGS", "_PYTHON_SYSCONFIGDATA_NAME", "UV_OFFLINE"),
        *("PYTEST_ADDOPTS", "PYTEST_PLUGINS", "OPENSSL_CONF", "OPENSSL_MODULES", "HOME"),
    ],
)
def test_variables_that_redirect_toolchain_programs_are_withheld(name: str):
    for env in (grading_environment({name: "/app/evil"}), grading_environment({}, task={name: "/app/evil"})):
        assert env.get(name) != "/app/evil"
    assert withheld_variables({name: "/app/evil"}) == {name}


def test_harmless_variables_are_passed_on():
    environment = {
        "LANG": "en_US.UTF-8",
        "TERM": "xterm",
        "PYTHONUNBUFFERED": "1",
        "NODE_PATH": "/opt",
        "ENVIRONMENT": "x",
    }
    assert grading_environment(environment).items() >= environment.items()
    assert not withheld_variables({**environment, "HOME": "/root"})

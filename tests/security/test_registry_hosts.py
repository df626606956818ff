"""Registries that a task's author names.

If this fails, whoever writes a task has the Docker engine ask servers of its host, its neighbours or a cloud."""

from __future__ import annotations

from collections.abc import Sequence
from ipaddress import ip_network
from pathlib import Path

import pytest

from sandbox.errors import ImageError
from sandbox.images.registry_credentials import RegistryCredentials
from sandbox.images.registry_hosts import NamedRegistries, RegistryGuard
from sandbox.ip_addresses import IpAddress, parse_ip_address
from sandbox.pool.settings import ContainerSettings
from sandbox.tasks.container_files.buildkit_syntax import to_classic
from sandbox.tasks.container_files.named_images import find_named_images
from sandbox.tasks.task_containers import ImageBuild

ADDRESSES = {
    "registry.example": "93.184.216.34",
    "inner.example": "10.0.0.7",
    "a.inner.example": "10.0.0.8",
    "meta.example": "169.254.169.254",
    "faked.example": "198.18.0.9",
}
INNER = "127.0.0.1:5999/x"
OF_EVERY_ENGINE = ("127.0.0.0/8", "::1/128")
"""Networks that every engine names."""


class FakeResolver:
    def __init__(self) -> None:
        self.asked: list[str] = []

    async def __call__(self, host: str) -> Sequence[IpAddress]:
        self.asked.append(host)
        address = parse_ip_address(ADDRESSES.get(host, ""))
        return () if address is None else (address,)


def guard(*hosts: str, networks: Sequence[str] = (), resolve: FakeResolver | None = None) -> RegistryGuard:
    async def by_operator(wanted: str) -> NamedRegistries:
        assert wanted
        return NamedRegistries(hosts, tuple(map(ip_network, (*OF_EVERY_ENGINE, *networks))))

    return RegistryGuard(by_operator, resolve or FakeResolver())


def named_in(dockerfile: str, target: str = "", **args: str) -> frozenset[str]:
    build = ImageBuild({"Dockerfile": dockerfile.encode("utf-8", "surrogateescape")}, args=args, target=target)
    return find_named_images(to_classic(build, "amd64").build)


@pytest.mark.parametrize(
    "image",
    [
        "127.0.0.1:5000/a", "127.1:80/a", "localhost/a", "LOCALHOST/a", "a.localhost:5000/a", "0.0.0.0:1/a",
        "[::1]:5000/a", "10.0.0.7/a", "192.168.0.2:5000/a/b:c", "169.254.169.254/latest", "[::ffff:127.0.0.1]:80/a",
        "inner.example/a", "meta.example:80/a", "198.18.0.9/a",
    ],
)  # fmt: skip
async def test_a_registry_beside_the_engine_is_refused_unless_the_operator_named_it(image: str) -> None:
    with pytest.raises(ImageError, match=r"sandbox\.allow_registries or --allow-registry"):
        await guard().check(image)
    await guard(image.partition("/")[0]).check(image)


@pytest.mark.parametrize(
    "image",
    [
        *("debian", "debian:12", "library/debian", f"registry.example/a/b@sha256:{'0' * 64}", "unknown.example/a"),
        *("faked.example/a", "registry.example:5000/a_b/c.d:1.0-x"),
    ],
)
async def test_public_registries_and_those_that_only_the_engine_finds_are_asked(image: str) -> None:
    await guard().check(image)


@pytest.mark.parametrize(
    "image",
    [
        "docker://127.0.0.1:5000/a", "dir:/etc/a", "docker-archive:/srv/a.tar", "docker-daemon:a:b", "oci:/srv/a:b",
        "127.0.0.1:/a", "127.0.0.1:5000:1/a", "user@127.0.0.1:5000/a", "127.0.0.1?:80/a", " 127.0.0.1:5000/a",
        "//127.0.0.1/a", "127.0.0.1%00:5000/a", "a[::1]:80/a", "\uff11\uff12\uff17.0.0.1/a",
    ],
)  # fmt: skip
async def test_what_some_engines_read_as_another_place_of_an_image_is_refused(image: str) -> None:
    """Podman takes several of these for a registry's address, or for a file of its machine."""
    with pytest.raises(ImageError, match="is not an image's name"):
        await guard("127.0.0.1", "*.example").check(image)


@pytest.mark.parametrize(
    "registry",
    [
        "ip6-localhost:5000",
        "localhost.localdomain",
        "docker:2375",
        "metadata.google.internal",
        "nas.local",
        "METADATA:80",
    ],
)
async def test_a_name_that_is_never_public_is_refused_though_only_the_engine_may_find_it(registry: str) -> None:
    with pytest.raises(ImageError, match="leads to no public host by its name"):
        await guard().check(f"{registry}/a")
    await guard(registry).check(f"{registry}/a")


@pytest.mark.parametrize(
    ("entry", "image"),
    [
        ("inner.example", "inner.example:5000/a"),
        ("INNER.example", "inner.EXAMPLE/a"),
        ("*.inner.example", "a.inner.example:5000/a"),
        ("inner.example:5000", "inner.example:5000/a"),
        ("[::1]:5000", "[::1]:5000/a"),
    ],
)
async def test_a_named_registry_is_asked_however_it_is_spelt(entry: str, image: str) -> None:
    await guard(entry).check(image)


@pytest.mark.parametrize(
    ("entry", "image"),
    [
        ("inner.example:5000", "inner.example:5001/a"),
        ("*.inner.example", "inner.example/a"),
        ("ner.example", "inner.example/a"),
    ],
)
async def test_another_port_or_host_than_the_named_one_is_refused(entry: str, image: str) -> None:
    with pytest.raises(ImageError, match="a private address"):
        await guard(entry).check(image)


async def test_private_networks_of_the_engines_configuration_are_named_but_loopback_and_metadata_never() -> None:
    for image in ("10.0.0.7:5000/a", "inner.example/a"):
        await guard(networks=("10.0.0.0/8",)).check(image)
    for image in ("127.0.0.1/a", "meta.example/a", "192.168.0.2/a"):
        with pytest.raises(ImageError):
            await guard(networks=("10.0.0.0/8", "169.254.0.0/16")).check(image)


async def test_a_registry_is_looked_up_once() -> None:
    resolver = FakeResolver()
    judge = guard("inner.example", resolve=resolver)
    for image in ("registry.example/a", "unknown.example/a", "inner.example/a") * 3:
        await judge.check(image)
    assert resolver.asked == ["registry.example", "unknown.example", "inner.example"]


def test_a_registry_for_which_a_helper_has_credentials_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    helper = tmp_path / "docker-credential-cloud"
    helper.write_text(
        '#!/bin/sh\nread -r host\n[ "$host" = inner.example ] || { echo credentials not found; exit 1; }\n'
        'echo \'{"Username": "u", "Secret": "s"}\'\n'
    )
    helper.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    file = tmp_path / "config.json"
    file.write_text('{"credsStore": "cloud"}')
    assert RegistryCredentials(file).has_login("inner.example")
    assert not RegistryCredentials(file).has_login("127.0.0.1:80")


@pytest.mark.parametrize("entry", ["registry.corp/a", "registry.corp:x", ""])
def test_an_entry_that_is_no_registry_is_refused_at_once(entry: str) -> None:
    with pytest.raises(ValueError, match="is not a registry"):
        ContainerSettings(allow_registries=(entry,))


def test_every_image_that_a_dockerfile_takes_from_elsewhere_is_found() -> None:
    dockerfile = """# a comment: FROM no/where
ARG HOST=127.0.0.1:80
ARG GIVEN
FROM --platform=linux/amd64 ${HOST}/one AS Base
FROM base
FROM "$GIVEN/two"
FROM ${UNKNOWN}localhost/three
FROM scratch
COPY --chown=1 --from=localhost/four /a /b
COPY --from=base --from=0 /a /b
RUN --mount=type=bind,from=localhost/five,target=/x --mount=from=localhost/six,target=/y true --from=no/where
ONBUILD COPY --from=localhost/seven /a /b
"""
    assert named_in(dockerfile, GIVEN="10.0.0.7") == {
        "127.0.0.1:80/one", "10.0.0.7/two", "localhost/three", "localhost/four", "localhost/five", "localhost/six",
        "localhost/seven",
    }  # fmt: skip


@pytest.mark.parametrize(
    "dockerfile",
    [
        f"ARG R={INNER}\nFROM scratch AS a\nARG R=debian\nFROM $R",
        f"ARG R={INNER}\nFROM scratch AS a\nARG R\nFROM $R",
        f"ARG R=debian\nARG R\nFROM ${{R-{INNER}}}",
        f"ARG R\nFROM ${{R-{INNER}}}",
        f"FROM scratch\nRUN --mount=type=bind,FROM={INNER},target=/xq true",
        f"FROM scratch\nRUN --mount=type=bind,target=/xq,From={INNER} true",
        f'FROM scratch\nCOPY --fr"om"={INNER} /a /b',
        f'FROM scratch\nCOPY --chown="0 " --from={INNER} /a /b',
        f"FROM scratch\nCOPY \udca0--from={INNER} /a /b",
        f"FROM scratch\nONBUILD RUN --mount=FROM={INNER},target=/x true",
        f'FROM --platform="linux/amd64${{X:+ }}" {INNER}',
    ],
)
def test_an_image_is_found_as_the_engine_reads_it(dockerfile: str) -> None:
    assert INNER in named_in(dockerfile)


def test_a_name_of_one_word_with_a_colon_is_judged_too() -> None:
    assert named_in("FROM docker-daemon:a:b\nFROM debian:12 AS x\nFROM x") == {"docker-daemon:a:b", "debian:12"}


def test_arguments_of_a_stage_are_not_those_of_from() -> None:
    dockerfile = "ARG REG=public.example\nFROM debian AS a\nARG REG=localhost:5000\nFROM $REG/x/y"
    assert named_in(dockerfile) == {"public.example/x/y"}


@pytest.mark.parametrize(
    "dockerfile",
    [
        f"ARG X=zz{INNER}\nFROM ${{X#zz}}",
        f"ARG R={INNER}\nFROM scratch\nCOPY --from=$R /a /b",
        f"FROM $1{INNER}",
        f"FROM $${INNER}",
        f"FROM ${{X:+'}}'debian/}}{INNER}",
        f"ARG R=${{X:+'}}'debian/}}{INNER}\nFROM $R",
        f"ARG A=R\nARG $A={INNER}\nFROM ${{R:-debian}}",
        f"ARG R=debian\nARG X=1\vR={INNER}\nFROM $R",
        f"# escape=`\nARG A=\\ R={INNER}\nFROM ${{R:-debian}}",
    ],
)
async def test_a_name_that_only_the_engine_knows_is_refused(dockerfile: str) -> None:
    unclear = [name for name in named_in(dockerfile) if "$" in name]
    assert unclear
    with pytest.raises(ImageError, match="only the engine knows"):
        await guard().check(unclear[0])


@pytest.mark.parametrize(
    ("target", "found"),
    [
        ("test", {"public.example/a", "public.example/b"}),
        ("TEST", {"public.example/a", "public.example/b"}),
        ("0", {"public.example/a"}),
        ("", {"public.example/a", "public.example/b", "localhost:5000/prod"}),
    ],
)
def test_stages_after_the_target_are_not_judged(target: str, found: set[str]) -> None:
    dockerfile = (
        "FROM public.example/a\nFROM scratch AS test\nCOPY --from=public.example/b /a /b\nFROM localhost:5000/prod"
    )
    assert named_in(dockerfile, target) == found

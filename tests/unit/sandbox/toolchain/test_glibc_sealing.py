"""If these fail, the toolchain's own programs load what an agent put where glibc looks by itself."""

from __future__ import annotations

import pytest

from protocol.errors import UserError
from sandbox.toolchain.glibc_sealing import LIBC_PATHS, LOADER_PATHS, seal_program, seal_static_program

DEBIAN = (b"/lib/x86_64-linux-gnu/", b"/usr/lib/x86_64-linux-gnu/", b"/lib/", b"/usr/lib/")
ARM = (b"/lib/aarch64-linux-gnu/", b"/usr/lib/aarch64-linux-gnu/", b"/lib/", b"/usr/lib/")
FEDORA = (b"/lib64/", b"/usr/lib64/")
CACHE, PRELOAD = b"/etc/ld.so.cache", b"/etc/ld.so.preload"
GCONV = b"/usr/lib/x86_64-linux-gnu/gconv"
OF_LIBC = (
    *(GCONV, GCONV + b"/gconv-modules.cache", b"/usr/lib/locale", b"/usr/lib/locale/locale-archive"),
    *(b"/usr/share/locale", b"/etc/nsswitch.conf"),
)


def program(*strings: bytes) -> bytes:
    return b"\x7fELF\1" + b"".join(each + b"\0" for each in strings) + b"glibc\0"


def strings_of(content: bytes) -> list[bytes]:
    return content.removeprefix(b"\x7fELF\1").split(b"\0")[:-2]


@pytest.mark.parametrize("folders", [DEBIAN, ARM, FEDORA], ids=["debian", "aarch64", "fedora"])
def test_the_sealed_loader_searches_no_library_folder_of_the_container(folders: tuple[bytes, ...]) -> None:
    before = program(*folders, CACHE, PRELOAD)
    after = seal_program("ld.so", before, *LOADER_PATHS)
    assert len(after) == len(before)
    for old, new in zip((*folders, CACHE, PRELOAD), strings_of(after), strict=True):
        assert len(new) == len(old)
        assert new == b"/sys/" if old == b"/lib/" else new.startswith(b"/.sbx/")
        assert new.endswith(b"/") == old.endswith(b"/")


def test_the_sealed_libc_loads_converters_locales_and_nss_settings_from_the_toolchain() -> None:
    after = strings_of(seal_program("libc.so.6", program(*OF_LIBC), *LIBC_PATHS))
    assert [each.replace(b"//", b"/").replace(b"//", b"/").replace(b"//", b"/") for each in after] == [
        b"/.sbx/x86_64-linux-gnu/gconv",
        b"/.sbx/x86_64-linux-gnu/gconv/gconv-modules.cache",
        b"/.sbx/locale",
        b"/.sbx/locale/locale-archive",
        b"/.sbx/locale",
        b"/.sbx/nsswitchconf",
    ]


def test_a_path_that_only_resembles_one_of_glibc_is_kept() -> None:
    others = (b"/usr/share/zoneinfo", b"/lib/modules", b"/usr/lib/getconf", b"/usr/share/locale/%L/%N", b"/lib/")
    before = program(*others)
    assert seal_program("busybox", before) == before


@pytest.mark.parametrize("lacking", [*LOADER_PATHS, *LIBC_PATHS], ids=lambda place: place.name)
def test_a_program_without_an_expected_path_is_refused(lacking: object) -> None:
    everything = dict(
        zip(
            [*LOADER_PATHS, *LIBC_PATHS],
            [(*DEBIAN,), (CACHE,), (PRELOAD,), (GCONV,), OF_LIBC[2:3], OF_LIBC[-1:]],
            strict=True,
        )
    )
    present = [text for place, texts in everything.items() if place is not lacking for text in texts]
    seal_program("libc.so.6", program(*DEBIAN, CACHE, PRELOAD, *OF_LIBC), *everything)
    with pytest.raises(UserError, match="cannot seal it"):
        seal_program("libc.so.6", program(*present), *everything)


def test_a_static_program_is_sealed_only_if_it_contains_glibc() -> None:
    assert seal_static_program("busybox", b"musl\0/lib/\0/usr/lib/\0") == b"musl\0/lib/\0/usr/lib/\0"
    with pytest.raises(UserError, match=r"busybox.*locale"):
        seal_static_program("busybox", program(*DEBIAN, CACHE, GCONV))
    assert b"gnu/gconv" in seal_static_program("busybox", program(*DEBIAN, CACHE, *OF_LIBC))

"""If these fail, the C program and Python use different numbers in frames, and messages are misread."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import sandbox.init
from sandbox.grading.containers import artifacts
from sandbox.session.init_connection import init_requests, wire
from sandbox.session.init_connection.init_messages import ByeReason, DeathCause, SlotKind
from sandbox.session.init_connection.init_requests import FileFlag

FOLDER = Path(sandbox.init.__file__).parent
_ENUM = re.compile(r"enum (?:\w+ )?\{([^}]*)\}")
_VALUE = re.compile(r"(?:0x)?[0-9A-Fa-f]+(?: << \d+)?")


def constants() -> dict[str, int]:
    """Return every enumerator of the C program that is a number; those without a value count up."""
    found: dict[str, int] = {}
    for source in (*sorted(FOLDER.glob("*.h")), *sorted(FOLDER.glob("*.c"))):
        for body in _ENUM.findall(source.read_text()):
            number = -1
            for each in body.split(","):
                name, _, value = (part.strip() for part in each.partition("="))
                if value and not _VALUE.fullmatch(value):
                    break
                base, _, shift = value.partition(" << ")
                number = int(base, 0) << int(shift or 0) if value else number + 1
                found[name] = number
    return found


OF_C = constants()
OF_PYTHON = {
    "PROTOCOL": wire.PROTOCOL,
    "HEADER": wire.FRAME_HEADER.size,
    "MAX_FRAME": wire.MAX_FRAME_BYTES,
    "SLOTS": wire.SLOTS,
    "MAIN_SLOT": wire.MAIN_SLOT,
    "CHILD_SLOT": wire.CHILD_SLOT,
    "NONCE": wire.NONCE_BYTES,
    "KEY": wire.KEY_BYTES,
    "CLIENT_HEADER": wire.FRAME_HEADER.size + wire.FRAME_CHECKSUM.size,
    "WORKDIR_MOST": artifacts.MAX_PATH_BYTES,
    "WRITE_APPEND": FileFlag.APPEND,
    "WRITE_REPLACE": FileFlag.REPLACE,
    "WRITE_CLEAR": FileFlag.CLEAR,
    "AS_AGENT": FileFlag.AS_AGENT,
    "GROUPS_MOST": wire.MAX_GROUPS,
    **{f"DIED_{each.name}": each for each in DeathCause},
    **{f"BYE_{each.name}": each for each in ByeReason},
    **{each.name: each for each in SlotKind},
}


@pytest.mark.parametrize("name", OF_PYTHON)
def test_both_ends_mean_the_same_number(name: str):
    assert OF_C[name] == OF_PYTHON[name]


@pytest.mark.parametrize("family", ["DIED_", "BYE_", "WRITE_"])
def test_every_constant_of_pid_1_has_a_name_in_python(family: str):
    assert {name for name in OF_C if name.startswith(family)} == {name for name in OF_PYTHON if name.startswith(family)}


def test_the_string_limit_equals_that_of_pid_1():
    with pytest.raises(ValueError, match=str(OF_C["MOST_STRINGS"])):
        init_requests.child_frame(1, "/", ["x"] * (OF_C["MOST_STRINGS"] + 1), {})
    assert init_requests.child_frame(1, "/", ["x"] * OF_C["MOST_STRINGS"], {})


def test_a_new_client_has_the_greatest_stream_position():
    assert re.search(r"#define NEW_CLIENT UINT64_MAX\b", (FOLDER / "init.h").read_text())
    assert wire.NEW_CLIENT == 2**64 - 1

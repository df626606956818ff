"""If these fail, an engine that did not start, or ended, is explained by colour codes, blank lines and numbers."""

from __future__ import annotations

from pathlib import Path

import pytest

from actors.engines.server.process import describe_exit, read_log_tail


def test_the_log_tail_is_short_plain_and_of_the_current_start(tmp_path: Path) -> None:
    log = tmp_path / "engine-0.log"
    log.write_text("of an earlier start\n")
    offset = log.stat().st_size
    with log.open("a") as stream:
        stream.write("--- 2026-11-21 13:00:00 UTC\n")
        stream.writelines(f"\x1b[2m\x1b[33mline {n}\x1b[0m\n\n=====\n" for n in range(9))
    assert read_log_tail(log, offset).splitlines() == [f"    line {n}" for n in range(4, 9)]
    log.write_text("of an earlier start\n--- 2026-11-21 13:00:00 UTC\nonly line\n")
    assert read_log_tail(log, offset) == "    only line"


@pytest.mark.parametrize(
    ("log_text", "cause"),
    [
        ("137\n", "the server was ended by SIGKILL"),
        ("1\n", "the server ended with status 1"),
        ("137 its scheduler was killed by SIGKILL\n", "the server was ended: its scheduler was killed by SIGKILL"),
    ],
)
def test_a_server_exit_is_described_by_the_process_that_ended_first(log_text: str, cause: str) -> None:
    assert describe_exit(log_text) == cause

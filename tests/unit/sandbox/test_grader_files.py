"""What goes into the tests' folder and what comes back: the right script runs, and silence or a flood is no pass."""

from __future__ import annotations

import pytest

from sandbox import grader
from sandbox.files import FileTooLarge
from sandbox.grading.outcome import Outcome, Report, Reported

PASSED = b'{"results": {"tests": [{"name": "a", "status": "passed"}]}}'


class Bench:
    """A container with these files; a longer one than is read says so."""

    def __init__(self, **files: bytes) -> None:
        self.files = files

    async def read_file(self, path: str, max_bytes: int) -> bytes:
        data = self.files.get(path.strip("/").partition(".")[0])
        if data is None:
            raise FileNotFoundError(path)
        if len(data) > max_bytes:
            raise FileTooLarge(f"{path} has more than {max_bytes} bytes")
        return data


@pytest.mark.parametrize(
    ("bench", "found", "why"),
    [
        (Bench(ctrf=PASSED), [Report((Reported("a", Outcome.PASSED),))], ""),
        (Bench(ctrf=b"", reward=b"1"), [Report(reward=1.0)], ""),
        (Bench(ctrf=b"", reward=b""), [], "wrote none of /ctrf.json, /reward.txt"),
        (Bench(), [], "wrote none of"),
        (Bench(ctrf=b" " * (5 << 20) + PASSED, reward=b"1"), [], "/ctrf.json has more than"),
    ],
)
async def test_reports_that_are_silent_or_too_long_prove_nothing(monkeypatch, bench: Bench, found, why: str):
    async def alone(_: object) -> None: ...

    monkeypatch.setattr(grader, "leave_alone", alone)
    reports, said = await grader._reports(bench, ("/ctrf.json", "/reward.txt"))
    assert list(reports) == found
    assert why in said
    assert bool(why) == bool(said)

"""If these fail, one process evicts an image that another process's session has reserved, or a dead process keeps
it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

from sandbox.images.ledger import ImageLedger

HOLDER = """
import sys, time
from pathlib import Path
from sandbox.images.ledger import ImageLedger
ledger = ImageLedger(Path(sys.argv[1]))
assert ledger.reserve("a:1")
print("held", flush=True)
time.sleep(600)
"""


def free(ledger: ImageLedger, name: str = "a:1") -> bool:
    with ledger.lock_exclusively(name) as alone:
        return alone


def test_a_reservation_lasts_until_its_last_holder_releases_it(tmp_path: Path):
    ledger = ImageLedger(tmp_path)
    assert ledger.reserve("a:1")
    assert ledger.reserve("a:1")
    ledger.release("a:1")
    assert not free(ledger)
    ledger.release("a:1")
    assert free(ledger)


def test_an_image_being_evicted_cannot_be_reserved(tmp_path: Path):
    ledger, other = ImageLedger(tmp_path), ImageLedger(tmp_path)
    with ledger.lock_exclusively("a:1") as alone:
        assert alone
        assert not other.reserve("a:1")
        assert other.reserve("b:1")
    assert other.reserve("a:1")


def test_another_processes_reservation_counts_until_that_process_is_killed(tmp_path: Path):
    ledger = ImageLedger(tmp_path)
    with subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(tmp_path)], stdout=subprocess.PIPE, cwd=Path(__file__).parents[4]
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"
        assert not free(ledger)
        holder.send_signal(signal.SIGKILL)
        holder.wait(60)
    assert free(ledger)


def test_recorded_images_are_remembered_with_their_last_use(tmp_path: Path):
    ledger = ImageLedger(tmp_path)
    ledger.record("a:1")
    os.utime(next(tmp_path.glob("*.image")), (5, 5))
    assert ImageLedger(tmp_path).last_used() == {"a:1": 5.0}
    ledger.touch("a:1")
    ledger.touch("not ours")
    assert ledger.last_used()["a:1"] > 5
    assert (ledger.is_ours("a:1"), ledger.is_ours("not ours")) == (True, False)
    ledger.forget("a:1")
    assert ledger.last_used() == {}

"""If this fails, a run that loses processes loses data, or `launch.bench chaos` would not see it."""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from launch.bench.chaos.books import Books, settle
from launch.bench.chaos.evidence import read_evidence
from launch.bench.chaos.points import Point, Process
from launch.bench.chaos.tasks import COUNT, listed
from sandbox.host import Host

KILLS, SEED = 10, 1
COUNTED = ("lost", "duplicated", "cursor_skips", "versions_with_two_hashes", "negative_ages")


def bench(*arguments: str, timeout_s: float = 2400) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "launch.bench", "chaos", "--json", *arguments]
    return subprocess.run(command, check=False, capture_output=True, text=True, timeout=timeout_s)


def books_of(run: Path) -> Books:
    return settle(read_evidence(run), listed([f"coin-{number:02d}" for number in range(COUNT)], SEED), SEED)


@pytest.mark.docker
@pytest.mark.ray
@pytest.mark.chaos
@pytest.mark.timeout(2700)
def test_nothing_is_lost_or_repeated_whoever_is_killed(docker_engine: Host, tmp_path: Path) -> None:
    folder = tmp_path / "kept"
    done = bench("--kills", str(KILLS), "--seed", str(SEED), "--folder", str(folder))
    assert done.returncode == 0, done.stderr[-6000:]
    said = json.loads(done.stdout)
    assert said["kills"] == sum(said["kills_by"].values()) >= KILLS
    assert set(said["kills_by"]) == set(Process)
    assert set(said["kills_at"]) == set(Point)
    assert all(said["kills_by"].values())
    assert len(list((folder / "runs" / "chaos" / "attempts").iterdir())) > 2, "no driver died and was gone on from"
    assert all(said["kills_at"].values())
    assert said["acked"] >= KILLS * 20
    fates = ("trained_exactly_once", "dropped", "in_buffer", "superseded")
    assert said["acked"] == sum(said[fate] for fate in fates)
    assert [said[name] for name in COUNTED] == [0] * 5
    assert said["trained_exactly_once"] > 0
    every_harm_is_found(folder / "runs" / "chaos")


def every_harm_is_found(run: Path) -> None:
    """Do to the finished run's files what a defect would have done, one after the other."""
    for name, harm in HARMS.items():
        before = getattr(books_of(run), name)
        harm(run)
        assert getattr(books_of(run), name) > before, name


def last_checkpoint(run: Path) -> Path:
    return max(path.parent for path in run.glob("checkpoints/step-??????/manifest.json"))


def lose_a_row(run: Path) -> None:
    acked, journal = read_evidence(run).acks, run / "buffer" / "journal.sqlite"
    with closing(sqlite3.connect(journal)) as database, database:
        dropped = {name for (name,) in database.execute("SELECT trajectory FROM rows WHERE state = 'dropped'")}
        victim = next(name for name, outcome in acked if outcome == "appended" and name in dropped)
        database.execute("DELETE FROM rows WHERE trajectory = ?", (victim,))


def train_again(run: Path) -> None:
    ledger = last_checkpoint(run) / "ledger.jsonl"
    lines = [json.loads(line) for line in ledger.read_text().splitlines()]
    lines[-1]["trained"].append(lines[0]["trained"][0])
    ledger.write_text("".join(json.dumps(line) + "\n" for line in lines))


def say(run: Path, **event: object) -> None:
    with (run / "events" / "zz.jsonl").open("a") as file:
        file.write(json.dumps({"t": 0.0, "writer": "zz", "seq": 0} | event) + "\n")


def skip_a_task(run: Path) -> None:
    last = max(read_evidence(run).opened)
    say(run, kind="group.opened", group=last + 2, task="coin-00")


def publish_twice(run: Path) -> None:
    version = next(iter(read_evidence(run).hashes))
    say(run, kind="weights.published", version=version, sha256="another")


def be_born_too_late(run: Path) -> None:
    """The weights that sampled forget whom they came from."""
    (run / "lineage.jsonl").write_text("")
    path = last_checkpoint(run) / "manifest.json"
    manifest = json.loads(path.read_text())
    manifest["lineage"] = [[version, step, -1] for version, step, _ in manifest["lineage"]]
    path.write_text(json.dumps(manifest))


HARMS: dict[str, Callable[[Path], None]] = {
    "lost": lose_a_row,
    "duplicated": train_again,
    "cursor_skips": skip_a_task,
    "versions_with_two_hashes": publish_twice,
    "negative_ages": be_born_too_late,
}


def test_where_no_sandbox_can_run_one_line_says_so(tmp_path: Path) -> None:
    env = {**os.environ, "LONGSHORE_HOME": str(tmp_path)}
    command = [sys.executable, "-m", "launch.bench", "chaos", "--json"]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=300, env=env)
    assert done.returncode == 2
    assert "python -m sandbox.host up" in json.loads(done.stdout)["error"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--kills", "9"], "--kills 9 is not enough"),
        (["--seed", "-1"], "--seed -1 is below 0"),
        (["--folder", "tests"], "tests is not empty"),
    ],
)
def test_what_cannot_be_done_is_said_in_one_line(arguments: list[str], said: str) -> None:
    done = bench(*arguments, timeout_s=300)
    assert done.returncode == 2
    assert said in json.loads(done.stdout)["error"]

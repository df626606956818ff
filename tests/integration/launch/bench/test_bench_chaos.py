"""If this fails, a run that loses processes loses data, or `launch.bench chaos` would not see it."""

from __future__ import annotations

import json
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from launch.bench.chaos.evidence import JsonLine, read_evidence
from launch.bench.chaos.kill_points import KilledProcess, KillPoint
from launch.bench.chaos.trajectory_audit import ChaosAccounting, audit_trajectories
from launch.bench.coin_tasks import COUNT, order_tasks
from protocol.cli.exit_codes import EXIT_USER
from sandbox.host_record import SandboxHost
from tests.support.commands import call_json

KILLS, SEED = 10, 1
COUNTED = ("lost", "duplicated", "sampler_skips", "versions_with_two_hashes", "negative_staleness")


def bench(*arguments: str, timeout_s: float = 2400) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "launch.bench", "chaos", "--json", *arguments]
    return subprocess.run(command, check=False, capture_output=True, text=True, timeout=timeout_s)


def accounting_of(run: Path) -> ChaosAccounting:
    return audit_trajectories(
        read_evidence(run), order_tasks([f"coin-{number:02d}" for number in range(COUNT)], SEED), SEED
    )


@pytest.mark.docker
@pytest.mark.ray
@pytest.mark.chaos
@pytest.mark.timeout(2700)
def test_no_trajectory_is_lost_or_repeated_when_processes_are_killed(
    docker_engine: SandboxHost, tmp_path: Path
) -> None:
    folder = tmp_path / "kept"
    done = bench("--kills", str(KILLS), "--seed", str(SEED), "--output", str(folder))
    assert done.returncode == 0, done.stderr[-6000:]
    report = json.loads(done.stdout)
    assert report["kills"] == sum(report["kills_by"].values()) >= KILLS
    assert set(report["kills_by"]) == set(KilledProcess)
    assert set(report["kills_at"]) == set(KillPoint)
    assert all(report["kills_by"].values())
    assert len(list((folder / "runs" / "chaos" / "starts").iterdir())) > 2, "no driver died and was gone on from"
    assert all(report["kills_at"].values())
    assert report["acknowledged"] >= KILLS * 20
    fates = ("trained_exactly_once", "dropped", "in_buffer", "superseded")
    assert report["acknowledged"] == sum(report[fate] for fate in fates)
    assert [report[name] for name in COUNTED] == [0] * 5
    assert report["trained_exactly_once"] > 0
    every_harm_is_found(folder / "runs" / "chaos", tmp_path / "harmed")


def every_harm_is_found(run: Path, copy: Path) -> None:
    """Do to a copy of the finished run's files what a defect would have done."""
    before = accounting_of(run)
    for harm, name in HARMS.items():
        shutil.copytree(run, copy, ignore=shutil.ignore_patterns("weights"))
        harm(copy)
        assert getattr(accounting_of(copy), name) > getattr(before, name), harm.__name__
        shutil.rmtree(copy)


def last_checkpoint(run: Path) -> Path:
    return max(path.parent for path in run.glob("checkpoints/step-??????/manifest.json"))


def change(run: Path, statement: str, name: str) -> None:
    """``statement`` on the journal, ``:name`` being the trajectory's."""
    with closing(sqlite3.connect(run / "buffer" / "journal.sqlite")) as database, database:
        assert database.execute(statement, {"name": name}).rowcount == 1, statement


def acknowledged(run: Path, state: str) -> str:
    """A trajectory of which a worker was told that it is durable, and which the journal has in ``state``."""
    evidence = read_evidence(run)
    names = [name for name, outcome in evidence.acks if outcome == "appended"]
    found = [name for name in names if name in evidence.rows and evidence.rows[name].state == state]
    assert found, f"no harm can be done where nothing is {state}"
    return found[0]


def lose_a_row(run: Path) -> None:
    change(run, "DELETE FROM trajectories WHERE trajectory = :name", acknowledged(run, "dropped"))


def spend_a_group_that_was_not_trained(run: Path) -> None:
    its_group = "UPDATE groups SET used = 1 WHERE id = (SELECT group_id FROM trajectories WHERE trajectory = :name)"
    change(run, its_group, acknowledged(run, "buffered"))


def close_a_group_and_keep_its_rows(run: Path) -> None:
    its_group = (
        "UPDATE groups SET outcome = 'zero_variance' WHERE id IN (SELECT group_id "
        "FROM trajectories WHERE trajectory = :name)"
    )
    change(run, its_group, acknowledged(run, "buffered"))


def forget_a_group(run: Path) -> None:
    its_group = "DELETE FROM groups WHERE id = (SELECT group_id FROM trajectories WHERE trajectory = :name)"
    change(run, its_group, acknowledged(run, "buffered"))


def write_over_a_payload(run: Path) -> None:
    change(run, "UPDATE payloads SET blob = x'00' WHERE trajectory = :name", acknowledged(run, "buffered"))


def change_ledger(run: Path, changed: Callable[[list[JsonLine]], list[JsonLine]]) -> None:
    """The newest checkpoint's."""
    ledger = last_checkpoint(run) / "ledger.jsonl"
    lines = changed([json.loads(line) for line in ledger.read_text().splitlines()])
    ledger.write_text("".join(json.dumps(line) + "\n" for line in lines))


def dropped_by(lines: list[JsonLine], name: str) -> list[JsonLine]:
    return [{**line, "dropped": {**line["dropped"], name: "all_stale"}} for line in lines]


def train_again(run: Path) -> None:
    def changed(lines: list[JsonLine]) -> list[JsonLine]:
        return [*lines[:-1], {**lines[-1], "trained": [*lines[-1]["trained"], lines[0]["trained"][0]]}]

    change_ledger(run, changed)


def hold_what_a_step_has_dropped(run: Path) -> None:
    name = acknowledged(run, "buffered")
    change_ledger(run, lambda lines: [*lines[:-1], *dropped_by(lines[-1:], name)])


def hold_what_a_step_has_trained(run: Path) -> None:
    name = next(name for line in read_evidence(run).ledgers[-1] for name in line.trained)
    change(run, "UPDATE trajectories SET state = 'buffered', step = NULL WHERE trajectory = :name", name)


def drop_twice(run: Path) -> None:
    name = acknowledged(run, "dropped")
    change_ledger(run, lambda lines: [*lines[:-2], *dropped_by(lines[-2:], name)])


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


def train_on_what_was_made_of_the_result(run: Path) -> None:
    """A step starts from the parent of the weights that sampled what it trained."""
    evidence = read_evidence(run)
    step, parent = next(
        (line.step, evidence.lineage[version][1])
        for line in evidence.ledgers[-1]
        for name in line.trained
        for version in evidence.sampled[name]
        if evidence.lineage[version][1] in evidence.lineage
    )
    change_ledger(run, lambda lines: [line | ({"version": parent} if line["step"] == step else {}) for line in lines])


HARMS: dict[Callable[[Path], None], str] = {
    lose_a_row: "lost",
    spend_a_group_that_was_not_trained: "lost",
    close_a_group_and_keep_its_rows: "lost",
    forget_a_group: "lost",
    write_over_a_payload: "lost",
    train_again: "duplicated",
    hold_what_a_step_has_dropped: "duplicated",
    hold_what_a_step_has_trained: "duplicated",
    drop_twice: "duplicated",
    skip_a_task: "sampler_skips",
    publish_twice: "versions_with_two_hashes",
    be_born_too_late: "negative_staleness",
    train_on_what_was_made_of_the_result: "negative_staleness",
}


def test_a_machine_that_cannot_run_sandboxes_is_reported_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("LONGSHORE_HOME", str(tmp_path))
    done = call_json(capfd, "launch.bench", "chaos")
    assert done.exit_code == EXIT_USER
    assert "longshore host up" in done.output["error"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--kills", "9"], "--kills 9 is not enough"),
        (["--seed", "-1"], "argument --seed: must be at least 0"),
        (["--output", "tests"], "tests is not an empty folder"),
    ],
)
def test_invalid_options_are_refused_in_one_line(
    arguments: list[str], message: str, capfd: pytest.CaptureFixture[str]
) -> None:
    done = call_json(capfd, "launch.bench", "chaos", *arguments)
    assert done.exit_code == EXIT_USER
    assert message in done.output["error"]

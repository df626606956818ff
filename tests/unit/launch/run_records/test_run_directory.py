"""A run's directory is never shared, never overwritten, and tells how to repeat the run."""

from __future__ import annotations

import errno
import json
import os
import re
import stat
from pathlib import Path

import pytest

from launch import report
from launch.config import load_recipe
from launch.control.requests import ControlAction, make_request, submit_request
from launch.run_records.config_changes import read_changes, record_changes
from launch.run_records.reproducibility import make_record, write_record
from launch.run_records.retunable_keys import apply_changes, diff_configs
from launch.run_records.run_directory import RunDirectory, require_new_run
from launch.run_records.run_lookup import find_newest_run, find_run
from launch.run_records.stored_config import load_resumed_config, load_stored_config
from launch.settings.run import NegativeControl
from protocol.errors import UserError
from protocol.run_directory.layout import NoSuchRunError, RunDirectoryError, resume_command
from protocol.run_directory.run_status import is_running
from tests.support.other_user import needs_root


def test_each_new_run_has_a_separate_directory(tmp_path: Path) -> None:
    with RunDirectory.create(tmp_path, "demo", now=0) as first, RunDirectory.create(tmp_path, "demo", now=0) as second:
        assert re.fullmatch(r"demo-\d{8}-\d{6}", first.run_id)
        assert second.run_id == f"{first.run_id}-2"
        assert first.logs == tmp_path / first.run_id / "starts" / "1" / "logs"
        assert first.logs.is_dir()


@pytest.mark.parametrize(("shared", "mode"), [(False, 0o700), (True, 0o755)])
@pytest.mark.parametrize("umask", [0o022, 0])
def test_other_accounts_enter_a_run_only_if_that_was_asked_for(
    tmp_path: Path, umask: int, shared: bool, mode: int
) -> None:
    """It holds tasks with their hidden tests, weights, and the monitor's token."""
    before = os.umask(umask)
    try:
        with RunDirectory.create(tmp_path, "demo", "mine", shared=shared) as run:
            assert stat.S_IMODE(run.path.stat().st_mode) == mode
    finally:
        os.umask(before)


@pytest.mark.parametrize(
    "name", ["metrics.jsonl", ".lock", "events", "starts/1/logs", "starts/1/logs/driver.jsonl", "checkpoints"]
)
def test_a_run_that_somebody_sent_writes_nowhere_else(tmp_path: Path, name: str) -> None:
    """Otherwise a resume appends what a sender chose to a shell's start-up file, whether that exists or not, or removes
    another run's checkpoints."""
    with RunDirectory.create(tmp_path, "demo", "sent") as run:
        pass
    place = run.path / name
    if place.is_dir():
        place.rmdir()
    place.unlink(missing_ok=True)
    place.symlink_to(tmp_path / ".profile")
    with pytest.raises(RunDirectoryError, match=rf"{name} is a link to .*\.profile"):
        RunDirectory.open(run.path)
    assert not (tmp_path / ".profile").exists()


def test_a_link_in_a_folder_that_cannot_be_listed_is_not_missed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of mode 0300 it could be written into."""
    with RunDirectory.create(tmp_path, "demo", "sent") as run:
        (run.path / "events").mkdir()
    scandir = os.scandir

    def refuse_to_list(path: str | Path) -> object:
        if Path(path).name == "events":
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))
        return scandir(path)

    monkeypatch.setattr(os, "scandir", refuse_to_list)
    with pytest.raises(RunDirectoryError, match="events: Permission denied"):
        RunDirectory.open(run.path)


@pytest.mark.parametrize(
    ("kind", "said"), [(stat.S_IFIFO, "a pipe"), (stat.S_IFSOCK, "a socket"), (stat.S_IFCHR, "a device")]
)
def test_only_files_stand_in_a_runs_files_places(tmp_path: Path, kind: int, said: str) -> None:
    if kind == stat.S_IFCHR and os.geteuid() != 0:
        pytest.skip("only root makes devices")
    with RunDirectory.create(tmp_path, "demo", "sent") as run:
        os.mknod(run.path / "lineage.jsonl", kind | 0o600, os.makedev(1, 5))
    with pytest.raises(RunDirectoryError, match=rf"lineage\.jsonl is {said}"):
        RunDirectory.open(run.path)


@needs_root
@pytest.mark.parametrize("name", ["", "events", "events/driver.jsonl"])
def test_a_run_that_another_account_can_change_is_not_opened(tmp_path: Path, name: str) -> None:
    """An archive that root unpacks keeps its owners: such an account could put a link there at any time."""
    with RunDirectory.create(tmp_path, "demo", "sent") as run:
        (run.path / "events").mkdir()
        (run.path / "events" / "driver.jsonl").touch()
    os.chown(run.path / name, 65534, -1)
    for _ in range(2):  # the refusal releases the lock
        with pytest.raises(RunDirectoryError, match=r"sent\S* belongs to \w+, and you are root: .*chown -R root"):
            RunDirectory.open(run.path)


def test_a_run_that_every_account_can_change_is_not_opened(tmp_path: Path) -> None:
    with RunDirectory.create(tmp_path, "demo", "sent") as run:
        run.path.chmod(0o777)
    with pytest.raises(RunDirectoryError, match="every account: chmod o-w"):
        RunDirectory.open(run.path)


def test_a_runs_directory_may_be_on_another_disk(tmp_path: Path) -> None:
    with RunDirectory.create(tmp_path / "disk", "demo", "mine") as run:
        (tmp_path / "mine").symlink_to(run.path)
    RunDirectory.open(tmp_path / "mine").close()


def test_a_name_collision_is_refused_with_the_remedies(tmp_path: Path) -> None:
    with RunDirectory.create(tmp_path, "demo", "mine") as run:
        write_record(run, load_recipe("demo"))
    with pytest.raises(RunDirectoryError) as caught:
        RunDirectory.create(tmp_path, "demo", "mine")
    on = f"`longshore cluster --resume mine --set run.dir={tmp_path}`"
    assert all(way in str(caught.value) for way in ("no run is overwritten", on, "--run-id NAME"))


def test_the_resume_command_names_the_folder_of_runs_unless_it_is_the_default(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert resume_command(Path("runs/mine")) == "longshore cluster --resume mine"
    assert resume_command(Path("my runs/mine")) == "longshore cluster --resume mine --set 'run.dir=my runs'"


@pytest.mark.parametrize("bad", ["", "../up", "a/b", ".hidden", "x" * 200])
def test_a_run_id_stays_inside_its_folder(tmp_path: Path, bad: str) -> None:
    with pytest.raises(RunDirectoryError, match="cannot be a run id"):
        RunDirectory.create(tmp_path, "demo", bad)
    assert not list(tmp_path.iterdir())


def test_two_drivers_never_share_a_run(tmp_path: Path) -> None:
    with RunDirectory.create(tmp_path, "demo", "mine") as run:
        write_record(run, load_recipe("demo"))
        with pytest.raises(RunDirectoryError, match="in use by process"):
            RunDirectory.open(run.path)
    with RunDirectory.open(run.path) as again:
        assert again.start_number == 2


def test_resume_finds_the_run_or_suggests_one(tmp_path: Path) -> None:
    for run_id in ("old", "new"):
        with RunDirectory.create(tmp_path, "demo", run_id) as run:
            write_record(run, load_recipe("demo"))
    assert find_newest_run(tmp_path, "demo", None) == tmp_path / "new"
    assert find_run(tmp_path, "old") == find_run(Path("runs"), f"{tmp_path}/old/") == tmp_path / "old"
    for parent, run in ((tmp_path, "olds"), (Path("runs"), f"{tmp_path}/olds")):
        with pytest.raises(NoSuchRunError, match=f"no run 'olds' in {tmp_path}: .*did you mean 'old'"):
            find_run(parent, run)
    with pytest.raises(RunDirectoryError, match="of recipe 'other'"):
        find_newest_run(tmp_path, "other", None)


def test_the_newest_run_is_the_newest_with_the_requested_settings(tmp_path: Path) -> None:
    """After a proof the newest of the recipe is a control, after a second seed the other seed's."""
    for run_id, changes in (("mine", ()), ("seed-1", ("run.seed=1",)), ("control", ('run.negative_control="lr0"',))):
        with RunDirectory.create(tmp_path, "demo", run_id) as run:
            write_record(run, load_recipe("demo", changes))
    assert find_newest_run(tmp_path, "demo", NegativeControl.NONE) == tmp_path / "seed-1"
    assert find_newest_run(tmp_path, "demo", NegativeControl.NONE, ("run.seed=0",)) == tmp_path / "mine"
    assert (
        find_newest_run(tmp_path, "demo", NegativeControl.LR0)
        == find_newest_run(tmp_path, "", None)
        == tmp_path / "control"
    )
    with pytest.raises(RunDirectoryError, match=r"seed-1 was started with another run\.seed"):
        find_newest_run(tmp_path, "demo", NegativeControl.NONE, ("run.seed=2",))


def test_a_folder_without_a_run_is_not_offered_for_resuming(tmp_path: Path) -> None:
    RunDirectory.create(tmp_path, "demo", "mine").close()
    with pytest.raises(RunDirectoryError, match=r"is not a run that can be resumed.*`rm -r \S+/mine`.*--run-id NAME"):
        require_new_run(tmp_path, "mine")


def test_resume_refuses_to_change_keys_that_checkpoints_depend_on(tmp_path: Path) -> None:
    with RunDirectory.create(tmp_path, "demo") as run:
        write_record(run, load_recipe("demo"))
    assert load_resumed_config(run.path, ()) == load_recipe("demo")
    assert load_resumed_config(run.path, ("run.steps=99", "run.seed=0")).run.steps == 99
    with pytest.raises(RunDirectoryError, match=r"another model\.layers, run\.seed"):
        load_resumed_config(run.path, ("run.seed=1", "model.layers=3"))
    for change in (
        "agent.temperature=0.5",
        "staleness.max_staleness=3",
        "evaluation.tasks_per_family=1",
        "lora.alpha=8",
    ):
        with pytest.raises(RunDirectoryError, match=f"another {change.partition('=')[0]}, which"):
            load_resumed_config(run.path, (change,))


def test_a_finished_run_can_be_resumed_only_with_more_steps(tmp_path: Path) -> None:
    with RunDirectory.create(tmp_path, "demo", "mine") as run:
        write_record(run, load_recipe("demo"))
        run.write_json("summary.json", {"ok": True})
    with pytest.raises(RunDirectoryError, match=r"run mine has ended .\S+/summary\.json .*--steps N"):
        load_resumed_config(run.path, ("run.steps=24",))
    with RunDirectory.open(run.path) as again:
        again.archive_results()
        write_record(again, load_resumed_config(run.path, ("run.steps=99",)))
    assert json.loads((run.path / "starts" / "1" / "summary.json").read_text()) == {"ok": True}
    assert load_resumed_config(run.path, ()).run.steps == 99, "it did not come to its new end"


@pytest.mark.parametrize(
    ("ended", "goes_on"), [("drained", True), ("stopped_by_request", True), ("steps", False), ("budget", False)]
)
def test_a_run_that_was_ended_on_request_can_be_resumed_unchanged(tmp_path: Path, ended: str, goes_on: bool) -> None:
    with RunDirectory.create(tmp_path, "demo", "mine") as run:
        write_record(run, load_recipe("demo"))
        run.write_json("summary.json", {"ok": True, "ended": ended})
    if goes_on:
        assert load_resumed_config(run.path, ()) == load_stored_config(run.path)
    else:
        with pytest.raises(RunDirectoryError, match="has ended"):
            load_resumed_config(run.path, ())


def test_changes_made_during_a_run_stay_in_its_record(tmp_path: Path) -> None:
    with RunDirectory.create(tmp_path, "demo", "mine") as run:
        write_record(run, load_recipe("demo"))
        config = apply_changes(load_stored_config(run.path), {"learner.lr": "1e-5"})
        changed = diff_configs(load_stored_config(run.path), config)
        record_changes(run.path, config, changed, first_step=7, t=1.0, by="me", reason="too fast")
    with RunDirectory.open(run.path) as again:
        write_record(again, load_resumed_config(run.path, ("run.steps=99",)))
    assert (load_stored_config(run.path).learner.lr, load_stored_config(run.path).run.steps) == (1e-5, 99)
    (change,) = read_changes(run.path)
    assert (change.start_number, change.first_step, change.after, change.reason) == (1, 7, 1e-5, "too fast")
    assert load_stored_config(run.path / "starts" / "1").learner.lr == load_recipe("demo").learner.lr, (
        "replays begin here"
    )


def test_a_run_with_a_driver_is_recognised_as_running(tmp_path: Path) -> None:
    assert not is_running(tmp_path)
    with RunDirectory.create(tmp_path, "demo") as run:
        assert is_running(run.path)
    assert not is_running(run.path)


def test_the_record_says_how_to_repeat_the_run(tmp_path: Path) -> None:
    with RunDirectory.create(tmp_path, "demo") as run:
        record = make_record(run, load_recipe("demo"), {"base": "sha256:1"})
        assert json.loads(write_record(run, load_recipe("demo")).read_text())["config"] == record["config"]
    for key in ("command", "seeds", "code", "python", "packages", "hardware", "images"):
        assert record[key], key


def test_a_damaged_record_is_named(tmp_path: Path) -> None:
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "config.json").write_text("{")
    with pytest.raises(RunDirectoryError, match=r"broken/config\.json"):
        load_stored_config(find_run(tmp_path, "broken"))


@pytest.mark.parametrize("record", [b"{", b"[]", b'{"config": []}', b'{"config": {"run": {"nmae": "demo"}}}'])
@pytest.mark.parametrize("name", ["demo", ""])
def test_an_unreadable_run_does_not_prevent_resuming_another(tmp_path: Path, record: bytes, name: str) -> None:
    with RunDirectory.create(tmp_path, "demo", "mine") as run:
        write_record(run, load_recipe("demo"))
    (tmp_path / "later").mkdir()
    (tmp_path / "later" / "config.json").write_bytes(record)
    assert find_newest_run(tmp_path, name, None) == tmp_path / "mine"


@pytest.mark.parametrize("name", ["../../escape", "a/b", "", ".hidden", "x" * 101])
def test_a_runs_name_stays_inside_the_folder_of_runs(name: str) -> None:
    with pytest.raises(UserError, match=r"cannot begin the name of a run's folder.*--set run\.name=NAME"):
        load_recipe("demo", [f'run.name="{name}"'])


def test_the_longest_name_makes_a_run_id(tmp_path: Path) -> None:
    name = load_recipe("demo", [f'run.name="{"x" * 100}"']).run.name
    with RunDirectory.create(tmp_path, name) as first:
        RunDirectory.create(tmp_path / "elsewhere", "demo", first.run_id).close()


USES = {
    "resume": RunDirectory.open,
    "steer": lambda run: submit_request(run, make_request(ControlAction.PAUSE)),
    "report": lambda run: report.COMMAND.call([str(run)]),
}


def refuse(monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    """Let nothing be made, as for another user or on a full disk: root, who runs the tests in CI, may do anything."""

    def fail(path: Path, *_: object, **__: object) -> None:
        raise OSError(number, os.strerror(number), str(path))

    for where, name in ((os, "open"), (Path, "mkdir"), (Path, "write_bytes")):
        monkeypatch.setattr(where, name, fail)


@pytest.mark.parametrize("use", USES)
def test_a_run_of_another_user_is_refused_with_its_owner(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, use: str
) -> None:
    with RunDirectory.create(tmp_path, "demo", "theirs") as run:
        write_record(run, load_recipe("demo"))
    with monkeypatch.context() as patched:
        patched.setattr(os, "geteuid", lambda: 4711)
        refuse(patched, errno.EACCES)
        with pytest.raises(RunDirectoryError, match=r"Permission denied\. \S+/theirs belongs to \w+, and you are 4711"):
            USES[use](run.path)


@pytest.mark.parametrize("use", USES)
def test_a_run_that_cannot_be_written_is_one_line_with_the_cause(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, use: str
) -> None:
    with RunDirectory.create(tmp_path, "demo", "mine") as run:
        write_record(run, load_recipe("demo"))
    with monkeypatch.context() as patched:
        refuse(patched, errno.EROFS)
        with pytest.raises(RunDirectoryError, match=r"Read-only file system: `findmnt -T \S+/mine` shows why"):
            USES[use](run.path)


def test_a_record_that_may_not_be_read_is_not_called_damaged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(path: Path) -> bytes:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))

    monkeypatch.setattr(Path, "read_bytes", fail)
    monkeypatch.setattr(os, "geteuid", lambda: 4711)
    with pytest.raises(RunDirectoryError, match=r"belongs to \w+, and you are 4711: .*sudo chown -R 4711"):
        load_stored_config(tmp_path)

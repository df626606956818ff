"""If these fail, hours of training end in a traceback, a run tells of a model that is not there, or a folder of
somebody's is overwritten."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from pathlib import Path
from typing import cast

import pytest

from launch.actor_group.learner_group import LearnerGroup
from launch.config import load_sft
from launch.settings.sft import SftSettings
from launch.sft.exports import EXPORTS_FILE, SftExports, check_exports
from learner.rank import LearnerRank
from protocol.errors import UserError

FILES = {"publish": ("config.json", "model.safetensors"), "publish_adapter": ("adapter_model.safetensors",)}


def fill(folder: Path, names: tuple[str, ...], step: int) -> None:
    folder.mkdir(exist_ok=True)
    for name in names:
        (folder / name).write_text(f"{name} of step {step}")


@dataclass(slots=True)
class FakeLearners:
    """Writes what the learner's ranks would, by name."""

    written: list[str] = field(default_factory=list[str])
    refusal: OSError | None = None

    async def call(self, method: object, _version: int, step: int, _parent: int, folder: str) -> None:
        named = next(name for name in FILES if method is vars(LearnerRank)[name])
        fill(Path(folder), FILES[named], step)
        self.written.append(named)
        if self.refusal is not None:
            raise self.refusal


def is_called_empty(path: Path) -> bool:
    return path.name == "empty"


def export_settings(**places: Path) -> SftSettings:
    return load_sft(None, [f"sft.{name}={place}" for name, place in places.items()] + ["lora.rank=2"]).sft


def write(learners: FakeLearners, sft: SftSettings, run_dir: Path, weights: str = "w") -> None:
    run_dir.mkdir(exist_ok=True)
    check_exports(sft, run_dir)
    exports = SftExports.from_config(sft, run_dir)
    asyncio.run(exports.write(cast("LearnerGroup", learners), 7, weights))


def test_an_output_path_that_cannot_be_written_is_refused_before_training(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    check_exports(export_settings(output=tmp_path / "a" / "b" / "new"), None)
    assert [path.name for path in tmp_path.iterdir()] == ["file"]
    for place in (Path("/proc/model"), tmp_path / "file" / "model", tmp_path / ("long" * 70)):
        with pytest.raises(UserError, match=r"cannot be written \(.*\): choose another --output"):
            check_exports(export_settings(output=place), None)
        with pytest.raises(UserError, match="choose another --adapters"):
            check_exports(export_settings(adapters=place), None)
    with pytest.raises(UserError, match="choose separate folders"):
        check_exports(export_settings(output=tmp_path / "a", adapters=tmp_path / "b" / ".." / "a" / "b"), None)


def test_a_place_that_is_taken_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "empty")
    (tmp_path / "empty").mkdir()
    check_exports(export_settings(output=tmp_path / "link"), None)
    with pytest.raises(UserError, match=r"exists, and nothing is overwritten: choose another --output"):
        check_exports(export_settings(output=tmp_path), None)
    (tmp_path / "run" / "model").mkdir(parents=True)
    (tmp_path / "run" / "model" / "config.json").touch()
    with pytest.raises(UserError, match=r"run/model exists, and nothing is overwritten"):
        check_exports(export_settings(), tmp_path / "run")
    monkeypatch.setattr(Path, "is_mount", is_called_empty)
    with pytest.raises(UserError, match=r"is a mount point.*--output .*/empty/model$"):
        check_exports(export_settings(output=tmp_path / "empty"), None)


def test_an_export_of_an_earlier_start_is_kept_only_if_it_is_complete(tmp_path: Path) -> None:
    sft, run_dir, learners = export_settings(adapters=tmp_path / "alone"), tmp_path / "run", FakeLearners()
    write(learners, sft, run_dir)
    model = run_dir / "model" / "model.safetensors"
    assert learners.written == ["publish", "publish_adapter"]
    assert (model.read_text(), len([*run_dir.iterdir()])) == ("model.safetensors of step 7", 2)
    assert [path.name for path in (tmp_path / "alone").iterdir()] == ["adapter_model.safetensors"]
    write(learners, sft, run_dir)
    assert learners.written == ["publish", "publish_adapter"]
    model.unlink()
    write(learners, sft, run_dir)
    assert (model.exists(), learners.written[2:]) == (True, ["publish"])
    write(learners, sft, run_dir, "others")
    assert learners.written[3:] == ["publish", "publish_adapter"]


@pytest.mark.parametrize("name", ["notes.txt", "model.safetensors"])
def test_foreign_files_in_the_output_folder_are_not_touched(tmp_path: Path, name: str) -> None:
    learners = FakeLearners()
    write(learners, export_settings(), tmp_path / "run")
    (tmp_path / "run" / "model" / name).write_text("mine")
    with pytest.raises(UserError, match=r"has files that this run did not write, and nothing is overwritten"):
        write(learners, export_settings(), tmp_path / "run")
    assert (tmp_path / "run" / "model" / name).read_text() == "mine"
    write(learners, export_settings(output=tmp_path / "other"), tmp_path / "run")
    assert (tmp_path / "other" / "model.safetensors").exists()


def test_a_failed_export_says_how_to_write_the_weights_elsewhere(tmp_path: Path) -> None:
    learners = FakeLearners(refusal=OSError(28, "No space left on device"))
    with pytest.raises(
        UserError, match=r"new cannot be written \(No space left.*longshore sft --resume run .*--output FOLDER$"
    ):
        write(learners, export_settings(output=tmp_path / "new"), tmp_path / "run")
    assert ([path.name for path in tmp_path.iterdir()], [*(tmp_path / "run").iterdir()]) == (["run"], [])
    learners.refusal = None
    write(learners, export_settings(output=tmp_path / "other"), tmp_path / "run")
    assert (tmp_path / "run" / EXPORTS_FILE).exists()


def test_a_partial_export_of_a_killed_start_is_replaced(tmp_path: Path) -> None:
    (tmp_path / ".new.partial").mkdir()
    (tmp_path / ".new.partial" / "half").touch()
    write(FakeLearners(), export_settings(output=tmp_path / "new"), tmp_path / "run")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["new", "run"]
    assert not (tmp_path / "new" / "half").exists()

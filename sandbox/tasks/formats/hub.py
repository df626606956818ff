"""Data sets of the Hugging Face hub, named where a path is expected: ``hf:ORG/NAME[@REVISION][:FILES]``.

``FILES`` are the files of rows in it, as a glob, or a folder of tasks.  Without them a data set of task folders is read
as one, and of several files those of the training split.  They lie in the hub's cache (``HF_HOME``), which is enough
where there is no network.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from sandbox.tasks.task import TaskError

ROW_FILES = (".parquet", ".jsonl", ".json")
_PREFIX = "hf:"
_NAME = re.compile(r"hf:(?P<name>[\w.-]+/[\w.-]+)(?:@(?P<revision>[\w./-]+))?(?::(?P<files>.+))?")


def is_hub_name(path: Path) -> bool:
    """Return whether ``path`` names a data set of the hub."""
    return str(path).startswith(_PREFIX)


def fetch_hub_dataset(path: Path, markers: Sequence[str]) -> list[Path]:
    """Return the files of rows, or the one folder of tasks, that ``path`` names, fetched where they are not yet there.

    ``markers``: names of the files that make a folder a task.  Raises TaskError, which says what to do.
    """
    found = _NAME.fullmatch(str(path))
    if not found:
        raise TaskError(
            path, "is no data set of the hub", "write hf:ORG/NAME, hf:ORG/NAME@REVISION or hf:ORG/NAME:FILES"
        )
    from huggingface_hub import snapshot_download  # pyright: ignore[reportUnknownVariableType]  untyped there
    from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError

    name, files = found["name"], found["files"] or ""
    try:
        wanted = [files, f"{files}/*"] if files else None
        folder = Path(snapshot_download(name, repo_type="dataset", revision=found["revision"], allow_patterns=wanted))
    except LocalEntryNotFoundError as error:
        raise TaskError(
            path,
            "is not in this machine's cache, and the hub does not answer",
            f"where there is a network: hf download {name} --repo-type dataset; then copy the cache (HF_HOME) here",
        ) from error
    except (HfHubHTTPError, OSError, ValueError) as error:
        why = f"{str(error).strip().splitlines()[0]}: see its name and revision, and if it is private: hf auth login"
        raise TaskError(path, "cannot be fetched", why) from error
    if files:
        return _named_files(path, folder, files)
    has_tasks = any(any(folder.glob(f"{above}{marker}")) for marker in markers for above in ("", "*/", "*/*/"))
    return [folder] if has_tasks else _usual_files(path, folder)


def _named_files(path: Path, folder: Path, files: str) -> list[Path]:
    if found := sorted(folder.glob(files)):
        return found
    raise TaskError(path, f"has no {files}", f"it has {_listed(_row_files(folder)) or 'no files of rows'}")


def _usual_files(path: Path, folder: Path) -> list[Path]:
    rows = _row_files(folder)
    training = [each for each in rows if "train" in each.relative_to(folder).as_posix()]
    if not rows:
        raise TaskError(path, "has neither tasks nor files of rows", f"a file of rows ends with {', '.join(ROW_FILES)}")
    if len(rows) > 1 and not training:
        raise TaskError(path, "has several files of rows", f"name those that you want: {path}:FILES; {_listed(rows)}")
    return training or rows


def _row_files(folder: Path) -> list[Path]:
    return sorted(each for each in folder.glob("**/*") if each.suffix in ROW_FILES)


def _listed(files: list[Path]) -> str:
    return ", ".join(each.name for each in files[:5]) + (" …" if len(files) > 5 else "")

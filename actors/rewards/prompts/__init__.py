"""Prompts of judges, text files by name and version: a file never changes, a better prompt has another name."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path

from protocol.cli.suggestions import did_you_mean
from protocol.errors import UserError

_MARKS = ("$task", "$turn")
"""Placeholders that a judge's prompt must contain."""


def list_judge_prompts() -> list[str]:
    """Return the names of the built-in prompts."""
    return sorted(each.name.removesuffix(".txt") for each in files(__name__).iterdir() if each.name.endswith(".txt"))


def load_judge_prompt(name_or_path: str) -> str:
    """Return the text of a built-in prompt by its name, or of a file by its path.  Raises UserError."""
    known = list_judge_prompts()
    if name_or_path in known:
        return files(__name__).joinpath(f"{name_or_path}.txt").read_text(encoding="utf-8")
    if "/" not in name_or_path:
        raise UserError(
            f"judge.prompt = '{name_or_path}' is none of {', '.join(known)}, and a file of your own is given by its "
            f"path, with a /{did_you_mean(name_or_path, known)}"
        )
    try:
        text = Path(name_or_path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"judge.prompt = '{name_or_path}' cannot be read: {error}") from error
    if lacking := [mark for mark in _MARKS if mark not in text]:
        raise UserError(
            f"judge.prompt = '{name_or_path}' lacks {' and '.join(lacking)}, without which the judge does not see "
            f"the turn: add it ($history and $result are supported too; see {known[0]})"
        )
    return text

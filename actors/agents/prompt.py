"""The messages that an episode begins with, as text files: ``prompts/NAME-VERSION.txt``.

A file that a run has used never changes: another wording is another version with another number.  Text before the first
section is for people.  ``--- system`` begins the system message, ``--- user`` the user's; without a user section the
user message is the instruction alone, without a system section there is no system message.  In both, ``{instruction}``
and ``{name}`` are replaced by the task's, ``{tools}`` by a line for each tool.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from pathlib import Path

import orjson

from protocol.cli.suggestions import did_you_mean
from protocol.errors import UserError

PROMPTS_FOLDER = Path(__file__).parent / "prompts"
_SECTION = re.compile(r"^--- (\w+)[ \t]*\n", re.MULTILINE)
_FIELD = re.compile(r"\{(instruction|name|tools)\}")
_INSTRUCTION = "{instruction}"


@dataclass(frozen=True, slots=True)
class PromptTemplate:
    """The system and the user message, with fields to fill."""

    system: str
    """Empty for no system message."""
    user: str = _INSTRUCTION

    def render(self, **fields: str) -> PromptTemplate:
        """Return the template with its fields filled; braces in the values are not substituted again."""

        def fill(text: str) -> str:
            return _FIELD.sub(lambda found: fields[found[1]], text)

        return PromptTemplate(fill(self.system), fill(self.user))

    @property
    def checksum(self) -> str:
        """The digest of both messages, ``sha256:…``."""
        return f"sha256:{hashlib.sha256(orjson.dumps([self.system, self.user])).hexdigest()}"

    def with_last_line(self, line: str) -> PromptTemplate:
        """Return the template with ``line`` at the end of its system message."""
        return PromptTemplate(f"{self.system}\n{line}" if self.system else line, self.user)


def list_agent_prompts() -> list[str]:
    """Return the names of the built-in prompts."""
    return sorted(path.stem for path in PROMPTS_FOLDER.glob("*.txt"))


def load_agent_prompt(name: str) -> PromptTemplate:
    """Load a built-in prompt by its name, or a file by its path, which ends in ``.txt``.  Raises UserError."""
    path = Path(name) if name.endswith(".txt") else PROMPTS_FOLDER / f"{name}.txt"
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        known = list_agent_prompts()
        raise UserError(
            f"no prompt is called '{name}' ({error}); the prompts are {', '.join(known)}, and a file of your own is "
            f"given by its path, ending in .txt{did_you_mean(name, known)}"
        ) from error
    _, *parts = _SECTION.split(text)
    sections = {kind: body.strip("\n") for kind, body in zip(parts[::2], parts[1::2], strict=True)}
    if not sections or not sections.keys() <= {"system", "user"}:
        raise UserError(
            f"{path}: a prompt has the sections '--- system' and '--- user', each on a line of its own, and this one "
            f"has {', '.join(sections) or 'none'}"
        )
    made = PromptTemplate(sections.get("system", ""), sections.get("user", _INSTRUCTION))
    if _INSTRUCTION not in made.system + made.user:
        raise UserError(f"{path}: {_INSTRUCTION} is missing, so no agent would know its task: add it")
    return made

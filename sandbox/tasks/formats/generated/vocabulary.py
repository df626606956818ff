"""The vocabulary of generated tasks, and the part of it that is held out.

A name is two words and belongs to one split, by its hash; so does the number of lines of a file.  An instance's names
and contents come from its own split, so no name, whole content or size of a held-out instance occurs in the warm start
or in training, while every word does: held-out instances require copying, not memory. Modes, extensions and other
numbers are shared.
"""

from __future__ import annotations

import hashlib
import random
from dataclasses import dataclass
from functools import cache

from sandbox.tasks.dataset_split import TaskSplit

# fmt: off
WORDS = (
    "amber", "apple", "arrow", "basil", "birch", "blade", "brick", "cabin", "cable", "candle", "cedar", "cloud",
    "comet", "coral", "cotton", "crane", "daisy", "delta", "dragon", "eagle", "ember", "falcon", "fern", "flame",
    "forest", "garden", "ginger", "globe", "harbor", "honey", "ivory", "jungle", "ladder", "lemon", "lilac", "linen",
    "lotus", "maple", "marble", "melon", "mint", "needle", "ocean", "olive", "onyx", "orchid", "otter", "panda",
    "paper", "pearl", "pepper", "pine", "planet", "quartz", "raven", "river", "saddle", "silver", "tulip", "walnut",
)
# fmt: on
"""Words of which names are made. No word is part of another, so that ``grep`` finds only whole names."""

EXTENSIONS = ("txt", "log", "csv", "md", "cfg", "dat")
MODES = ("600", "640", "700", "750", "755", "400", "444", "660")
"""File modes to set; none is the default mode of files (644)."""

_HELD_OUT_ONE_IN = 8


SIZES = {TaskSplit.TRAIN: (8, 9, 11, 12), TaskSplit.HELD_OUT: (10, 13)}
"""Possible numbers of lines of a file, rows of a table, files of a folder."""


def split_of(name: str) -> TaskSplit:
    """Return the split to which a name belongs."""
    digest = hashlib.sha256(name.encode()).digest()
    return TaskSplit.HELD_OUT if digest[0] % _HELD_OUT_ONE_IN == 0 else TaskSplit.TRAIN


@cache
def names_of(split: TaskSplit) -> tuple[tuple[str, ...], ...]:
    """Return the names of ``split``, grouped by the word that they begin with."""
    return tuple(
        tuple(name for other in WORDS if other != word and split_of(name := f"{word}-{other}") is split)
        for word in WORDS
    )


@dataclass(frozen=True, slots=True)
class DraftChoices:
    """The random choices of one instance. A family uses those that it needs, names first."""

    names: tuple[str, ...]
    """One name for each first word, in random order: the first few name things, the others fill files."""
    size: int
    """Number of lines of each file that the instance starts with."""
    instruction_lines: int
    """Number of lines that the instruction mentions; fewer than ``size``."""
    column: int
    extension: str
    mode: str
    numbers: tuple[int, ...]

    @property
    def filler(self) -> tuple[str, ...]:
        """Names that nothing else in this instance uses."""
        return self.names[MOST_NAMES:]


MOST_NAMES = 4
"""Maximum number of names that a family uses."""


def draw_choices(rng: random.Random, split: TaskSplit) -> DraftChoices:
    names = [rng.choice(names) for names in names_of(split)]
    rng.shuffle(names)
    return DraftChoices(
        names=tuple(names),
        size=rng.choice(SIZES[split]),
        instruction_lines=rng.randint(2, 6),
        column=rng.randint(1, 3),
        extension=rng.choice(EXTENSIONS),
        mode=rng.choice(MODES),
        numbers=tuple(rng.randint(1, 99) for _ in range(3 * max(map(max, SIZES.values())))),
    )

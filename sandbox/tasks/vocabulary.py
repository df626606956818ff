"""The words of generated tasks, and which combinations of them are held out.

All splits use the same words; what is held out is how they are combined, decided by a hash of the instruction itself.
So no bookkeeping can go wrong: an instruction belongs to exactly one split, whoever asks.
"""

from __future__ import annotations

import hashlib
import random
from dataclasses import dataclass
from enum import StrEnum

# fmt: off
WORDS = (
    "amber", "apple", "arrow", "basil", "birch", "blade", "brick", "cabin", "cable", "candle", "cedar", "cloud",
    "comet", "coral", "cotton", "crane", "daisy", "delta", "dragon", "eagle", "ember", "falcon", "fern", "flame",
    "forest", "garden", "ginger", "globe", "harbor", "honey", "ivory", "jungle", "ladder", "lemon", "lilac", "linen",
    "lotus", "maple", "marble", "melon", "mint", "needle", "ocean", "olive", "onyx", "orchid", "otter", "panda",
    "paper", "pearl", "pepper", "pine", "planet", "quartz", "raven", "river", "saddle", "silver", "tulip", "walnut",
)
# fmt: on
"""Names and contents.  No word is part of another, so that ``grep`` finds a word and nothing else."""

EXTENSIONS = ("txt", "log", "csv", "md", "cfg", "dat")
MODES = ("600", "640", "700", "750", "755", "400", "444", "660")
"""File modes to set; none is the mode that files come with (644)."""

_HELD_OUT_ONE_IN = 8


class Split(StrEnum):
    TRAIN = "train"
    """Warm start and training."""
    HELD_OUT = "held_out"
    """Evaluation only: neither the warm start nor training ever sees the instruction."""


def split_of(instruction: str) -> Split:
    """The one split that an instruction belongs to."""
    digest = hashlib.sha256(instruction.encode()).digest()
    return Split.HELD_OUT if digest[0] % _HELD_OUT_ONE_IN == 0 else Split.TRAIN


@dataclass(frozen=True, slots=True)
class Draw:
    """The random choices behind one instance.  A family uses those it needs, names first."""

    words: tuple[str, ...]
    """All of :data:`WORDS` in random order: the first few name things, the others fill files."""
    lines: int
    column: int
    extension: str
    mode: str
    numbers: tuple[int, ...]

    @property
    def filler(self) -> tuple[str, ...]:
        """Words that name nothing in this instance."""
        return self.words[NAMES:]


NAMES = 4
"""The most names that a family uses."""


def draw(rng: random.Random) -> Draw:
    return Draw(
        words=tuple(rng.sample(WORDS, len(WORDS))),
        lines=rng.randint(2, 6),
        column=rng.randint(1, 3),
        extension=rng.choice(EXTENSIONS),
        mode=rng.choice(MODES),
        numbers=tuple(rng.randint(1, 99) for _ in range(24)),
    )

"""If these fail, bytes from outside end in an error that nobody documented: one that shuts a server's client out, or
hides from a user what is wrong with a file.

The same inputs each time, changed from good ones; ``python -m tests.fuzz`` looks further (docs/security.md, Fuzzing).
"""

from __future__ import annotations

from random import Random

import pytest

from tests.fuzz.mutations import mutate
from tests.fuzz.targets import TARGETS

pytestmark = pytest.mark.slow

MOST_BYTES = 65_536
INPUTS = 1000
FEWER_INPUTS = {"task-harbor": 100, "task-terminal_bench": 200, "parquet": 40}
"""Of targets that read many files, or start a database, for each input."""


@pytest.mark.parametrize("name", TARGETS)
def test_no_changed_input_ends_in_another_error_than_the_documented_one(name: str):
    target, rng = TARGETS[name], Random(name)
    good = target.corpus()
    for _ in range(FEWER_INPUTS.get(name, INPUTS)):
        data = mutate(rng.choice(good), target.kind, rng, good)
        if len(data) > MOST_BYTES:
            continue
        try:
            target.run(data)
        except Exception as error:
            error.add_note(f"the input: {data!r}")
            raise


@pytest.mark.parametrize("name", TARGETS)
def test_every_input_to_begin_with_is_good(name: str):
    for data in TARGETS[name].corpus():
        TARGETS[name].run(data)

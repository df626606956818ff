"""Ranks run in forked processes (rank_host.py); models are made by transformers in a temporary folder."""

import os
import pickle
import struct
import subprocess
import sys
from pathlib import Path

import pytest
from learner_data import SHAPES

from learner.spec import LearnerSpec
from tests.support.runs.learner_specs import make_spec


class RankHost:
    """Runs a case of learner_cases.py in forked ranks."""

    def __init__(self) -> None:
        host = Path(__file__).with_name("rank_host.py")
        self._process = subprocess.Popen(
            [sys.executable, str(host)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "TOKENIZERS_PARALLELISM": "false", "HF_HUB_OFFLINE": "1"},
        )

    def run(self, case: str, world: int = 1, **arguments) -> list:
        """The result of each rank; a rank's error fails the test with its traceback."""
        request = pickle.dumps((world, case, arguments))
        self._process.stdin.write(struct.pack("<Q", len(request)) + request)
        self._process.stdin.flush()
        (size,) = struct.unpack("<Q", self._process.stdout.read(8))
        answers = pickle.loads(self._process.stdout.read(size))  # noqa: S301 - our own child
        failed = [text for ok, text in answers if not ok]
        assert not failed, "\n".join(failed)
        return [result for _, result in answers]

    def learner(self, settings: LearnerSpec, *then, world: int = 1) -> list:
        """Rank 0's results of these (method, *arguments)."""
        return self.run("calls", world, settings=settings, then=then)[0]

    def close(self) -> None:
        self._process.stdin.close()
        self._process.wait(30)
        self._process.stdout.close()


@pytest.fixture(scope="session")
def ranks():
    host = RankHost()
    yield host
    host.close()


@pytest.fixture(scope="session")
def models(ranks, tmp_path_factory):
    """Folder of each shape in SHAPES."""
    root = tmp_path_factory.mktemp("models")
    for name, shape in SHAPES.items():
        ranks.run("make_model", folder=str(root / name), shape=shape)
        (root / name / "tokenizer.json").write_text("{}")
    return {name: str(root / name) for name in SHAPES}


@pytest.fixture
def settings(models):
    """A function: settings for a shape, small and deterministic."""

    def make(shape: str = "tied", **changes) -> LearnerSpec:
        defaults = {"model_path": models[shape], "threads": 1, "dtype": "float32", "lr": 1e-3, "call_timeout_s": 75.0}
        return make_spec(**defaults | changes)

    return make

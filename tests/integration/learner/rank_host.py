"""A process that has imported torch, megatron and transformers once and forks learner ranks on request: importing costs
more than any test.  Requests and answers are pickles over its pipes; ranks and host die with their parent.

It never computes before a fork, so that no thread of its is lost in the child.
"""

import ctypes
import io
import os
import pickle
import signal
import struct
import sys
import tempfile
import traceback
import warnings
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[3]))
sys.path.insert(0, str(Path(__file__).parent))

from protocol.processes.loopback import find_free_port

_LIMIT_S = 120


def die_with_parent() -> None:
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)
    if os.getppid() == 1:
        os._exit(1)


def read_exactly(stream: io.BufferedReader, count: int) -> bytes:
    data = stream.read(count)
    if len(data) != count:
        os._exit(0)
    return data


def run_ranks(world: int, case: str, arguments: dict) -> list:
    """Fork ``world`` ranks; each runs ``learner_cases.<case>(rank, world, port, **arguments)``."""
    import learner_cases

    port, pids = find_free_port(), []
    with tempfile.TemporaryDirectory() as folder:
        for rank in range(world):
            pid = os.fork()
            if pid == 0:
                die_with_parent()
                signal.alarm(_LIMIT_S)
                try:
                    outcome = True, getattr(learner_cases, case)(rank, world, port, **arguments)
                except BaseException as error:  # noqa: BLE001 - whatever it is, the test shall show it
                    outcome = False, f"rank {rank}: {type(error).__name__}: {error}\n{traceback.format_exc()}"
                (Path(folder) / str(rank)).write_bytes(pickle.dumps(outcome))
                os._exit(0)
            pids.append(pid)
        for pid in pids:
            os.waitpid(pid, 0)
        return [read_outcome(Path(folder) / str(rank)) for rank in range(world)]


def read_outcome(path: Path) -> tuple:
    """(whether it went well, result or traceback) that a rank left."""
    if not path.exists():
        return False, f"rank {path.name} died without a word"
    return pickle.loads(path.read_bytes())  # noqa: S301 - our own child


def main() -> None:
    die_with_parent()
    warnings.simplefilter("ignore")
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what a library prints must not look like an answer
    import torch

    torch.set_num_threads(1)
    import learner_cases  # noqa: F401  makes the cases picklable by name

    while True:
        (size,) = struct.unpack("<Q", read_exactly(sys.stdin.buffer, 8))
        world, case, arguments = pickle.loads(read_exactly(sys.stdin.buffer, size))  # noqa: S301 - our own parent
        answer = pickle.dumps(run_ranks(world, case, arguments))
        answers.write(struct.pack("<Q", len(answer)) + answer)
        answers.flush()


if __name__ == "__main__":
    main()

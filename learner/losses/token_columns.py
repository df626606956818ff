"""Input of a loss: columns of values for the ``N`` tokens with loss of one sequence or of a micro-batch.  The same
class holds numpy arrays first and tensors on the device."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from typing import Any, Generic, TypeVar, cast

import numpy as np
import numpy.typing as npt

from protocol.errors import UserError

A = TypeVar("A")
B = TypeVar("B")
TokenArray = npt.NDArray[Any]


@dataclass(frozen=True, slots=True, eq=False)
class TokenColumns(Generic[A]):
    """Every column has ``N`` values."""

    behaviour: A
    """float32: log μ as recorded; 0 in supervised fine-tuning."""
    advantages: A
    """float32: advantage of the token."""
    weights: A
    """float32: weight of the token in the loss −Σ weight · objective over the whole batch."""
    staleness: A
    """int32: optimizer steps between the weights that sampled the token and those of the step."""
    sequence: A
    """int64: index of the token's sequence in the micro-batch, ascending."""
    on_policy: A | None = None
    """bool: true if the step's own weights sampled the token's whole turn, on a prefix that they computed."""
    index: A | None = None
    """int64: index of the token in the batch, to which results are assigned."""
    proximal: A | None = None
    """float32: log π of the weights before the batch's first update."""
    reference: A | None = None
    """float32: log π of the frozen reference weights."""
    keep: A | None = None
    """bool: false if a rule over the whole batch removes the token's loss; its weight still counts."""

    def map(self, change: Callable[[A], B]) -> TokenColumns[B]:
        """Apply ``change`` to every present column."""
        values = ((field.name, cast("A | None", getattr(self, field.name))) for field in fields(self))
        return TokenColumns(**{name: change(value) for name, value in values if value is not None})


def make_token_columns(
    behaviour: TokenArray,
    advantages: TokenArray,
    weight: float,
    staleness: TokenArray | None = None,
    own: TokenArray | None = None,
) -> TokenColumns[TokenArray]:
    """Return the columns of one sequence with their types; all tokens have the weight ``weight``, and staleness 0 if
    none is given.  Raises UserError unless they are vectors of one length."""
    count = len(behaviour)
    found: TokenColumns[TokenArray] = TokenColumns(
        behaviour=behaviour.astype(np.float32, copy=False),
        advantages=advantages.astype(np.float32, copy=False),
        weights=np.full(count, weight, np.float32),
        staleness=np.zeros(count, np.int32) if staleness is None else staleness.astype(np.int32, copy=False),
        sequence=np.zeros(count, np.int64),
        on_policy=own,
    )
    shapes = {name: column.shape for name, column in _present(found).items()}
    if set(shapes.values()) != {(count,)}:
        raise UserError(f"columns of different shapes: {shapes}; each has one value for each token with loss")
    return found


def concatenate_token_columns(parts: Sequence[TokenColumns[TokenArray]]) -> TokenColumns[TokenArray]:
    """Concatenate the columns of a micro-batch's sequences, which are numbered; sequences without tokens get no
    number."""
    present = [_present(part) for part in parts]
    joined = {name: np.concatenate([part[name] for part in present]) for name in present[0]}
    lengths = np.array([len(part.behaviour) for part in parts if len(part.behaviour)], np.int64)
    return TokenColumns(**joined | {"sequence": np.repeat(np.arange(len(lengths)), lengths)})


def _present(found: TokenColumns[TokenArray]) -> dict[str, TokenArray]:
    named = ((field.name, cast("TokenArray | None", getattr(found, field.name))) for field in fields(found))
    return {name: column for name, column in named if column is not None}

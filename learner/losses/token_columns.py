"""What a loss is told of the tokens with loss: columns of ``N`` tokens, of one sequence, or of those of a micro-batch
one after the other.  The same class holds numpy arrays on their way in and tensors on the device."""

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
    """float32"""
    weights: A
    """float32: the token's share of the loss, which is −Σ weight · objective over the whole batch."""
    ages: A
    """int32: optimizer steps between the weights that sampled it and those of the step."""
    sequence: A
    """int64: index of its sequence in the micro-batch, ascending."""
    on_policy: A | None = None
    """bool: True where the step's very weights sampled the token, and all of its turn on a prefix of theirs."""
    place: A | None = None
    """int64: index of the token in the batch, by which a pass over the batch finds it again."""
    proximal: A | None = None
    """float32: log π of the weights before the batch's first update."""
    reference: A | None = None
    """float32: log π of the frozen reference weights."""
    keep: A | None = None
    """bool: False where a rule over the whole batch takes the token's loss; its weight counts all the same."""

    def map(self, change: Callable[[A], B]) -> TokenColumns[B]:
        """``change`` of every column that is there."""
        values = ((field.name, cast("A | None", getattr(self, field.name))) for field in fields(self))
        return TokenColumns(**{name: change(value) for name, value in values if value is not None})


def make_token_columns(
    behaviour: TokenArray,
    advantages: TokenArray,
    weight: float,
    ages: TokenArray | None = None,
    own: TokenArray | None = None,
) -> TokenColumns[TokenArray]:
    """Of one sequence, each as its column's type; one weight is that of every token, and no ages are ages 0.  Raises
    UserError where they are not vectors of one length."""
    count = len(behaviour)
    found: TokenColumns[TokenArray] = TokenColumns(
        behaviour=behaviour.astype(np.float32, copy=False),
        advantages=advantages.astype(np.float32, copy=False),
        weights=np.full(count, weight, np.float32),
        ages=np.zeros(count, np.int32) if ages is None else ages.astype(np.int32, copy=False),
        sequence=np.zeros(count, np.int64),
        on_policy=own,
    )
    shapes = {name: column.shape for name, column in _present(found).items()}
    if set(shapes.values()) != {(count,)}:
        raise UserError(f"columns of different shapes: {shapes}; each has one value for each token with loss")
    return found


def concatenate_token_columns(parts: Sequence[TokenColumns[TokenArray]]) -> TokenColumns[TokenArray]:
    """Of a micro-batch from those of its sequences, which are numbered; those without tokens have no number."""
    present = [_present(part) for part in parts]
    joined = {name: np.concatenate([part[name] for part in present]) for name in present[0]}
    lengths = np.array([len(part.behaviour) for part in parts if len(part.behaviour)], np.int64)
    return TokenColumns(**joined | {"sequence": np.repeat(np.arange(len(lengths)), lengths)})


def _present(found: TokenColumns[TokenArray]) -> dict[str, TokenArray]:
    named = ((field.name, cast("TokenArray | None", getattr(found, field.name))) for field in fields(found))
    return {name: column for name, column in named if column is not None}

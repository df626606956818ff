"""The configuration of one run: its tables, checked against each other."""

from __future__ import annotations

from typing import Self

from pydantic import model_validator

from launch.config.checks import find_problems
from launch.config.tables import RunTables


class RunConfig(RunTables):
    @model_validator(mode="after")
    def _consistent(self) -> Self:
        """Report every problem at once."""
        if problems := find_problems(self):
            raise ValueError("; also: ".join(problems))
        return self

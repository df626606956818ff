"""The command lines of this room: a mistake is an error like any other, so that ``--json`` has its object then too."""

from __future__ import annotations

import argparse
from typing import NoReturn

from launch.config.base import did_you_mean
from protocol.errors import UserError


class Parser(argparse.ArgumentParser):
    """Raises UserError where argparse would print and exit."""

    def error(self, message: str) -> NoReturn:
        wrong = [word for word in message.split() if word.startswith("--")]
        hint = ""
        if message.startswith("unrecognized arguments") and wrong:
            hint = did_you_mean(wrong[0].partition("=")[0], self._option_string_actions)
        raise UserError(f"{message}{hint}; see {self.prog} --help")

"""The suite of attacks."""

from __future__ import annotations

from sandbox.validation.attacks.on_programs import PROGRAM_ATTACKS
from sandbox.validation.attacks.on_python import PYTHON_ATTACKS
from sandbox.validation.attacks.on_reports import REPORT_ATTACKS
from sandbox.validation.attacks.within_tests import WITHIN_ATTACKS

ATTACKS = (*REPORT_ATTACKS, *PROGRAM_ATTACKS, *PYTHON_ATTACKS, *WITHIN_ATTACKS)

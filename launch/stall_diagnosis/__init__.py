"""Diagnoses a run that makes no progress: one line that says who waits for whom, and one file with every stack.

:mod:`.detector` notices a stall, :mod:`.evidence` gathers tasks and stacks from every process, :mod:`.wait_chain`
derives the line, and :mod:`.report_file` writes the file.  The diagnosis ends nothing: a hanging call is cancelled by
its own caller at its own deadline.
"""

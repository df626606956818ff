"""What a run that makes no progress was doing: who waits for whom, in one line, and every stack in one file.

:mod:`.stall` notices it, :mod:`.evidence` asks every process, :mod:`.who` finds the line, :mod:`.report` writes the
file.  Nothing is ended or woken for it: what hangs is killed by whoever waits for it, at its own deadline.
"""

"""What a run that makes no progress was doing: who waits for whom, in one line, and every stack in one file.

:mod:`.detector` notices a stall, :mod:`.evidence` asks every process, :mod:`.wait_chain` finds the line, and
:mod:`.report_file` writes the file.  Nothing is ended or woken for it: what hangs is killed by whoever waits for it,
at its own deadline.
"""

"""Requests to a run that is going on, from the file that holds one to the event that answers it.

``python -m launch.ctl`` writes a request (:mod:`.requests`); the driver's :mod:`.server` takes it, has it executed
(:mod:`.actions`) and answers with an event.  What concerns the training loop is done between two of its steps
(:mod:`.step_hooks`).  Nobody needs a connection to the run to ask, and a run waits for nobody who asks.  The package
knows the training loop only as a Protocol.
"""

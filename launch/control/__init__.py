"""Control requests to a running run, from the request's file to the event that answers it.

``longshore ctl`` writes a request (:mod:`.requests`); the driver's :mod:`.server` reads it, has it executed
(:mod:`.actions`) and answers with an event.  Actions on the training loop run between two of its steps
(:mod:`.step_hooks`).  A request needs no connection to the run, and the run never waits for a client.  The package
knows the training loop only as a Protocol.
"""

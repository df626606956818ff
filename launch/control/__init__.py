"""What a person asks of a run that goes on, from the file it is asked in to the word that it is done.

``python -m launch.ctl`` writes a request (:mod:`.requests`); the driver's desk (:mod:`.desk`) takes it, has it done
where that is safe, and answers by an event.  What concerns the training loop is done between two of its steps
(:mod:`.boundary`).  Whoever asks needs no connection to the run, and a run waits for nobody who asks.
"""

"""One run from its command line to its summary.

:mod:`.driver` starts the parts of a run and waits for them: nodes, actors, first weights, services, training and
results, a module each.  :mod:`.arguments` and :mod:`.preflight` come before it; :mod:`.proof` repeats it with the
negative controls.  It is the top of launch; only commands import it.
"""

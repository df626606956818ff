"""``python -m sandbox.stress``: how many sandboxes a machine holds, how fast, and whether each answer is right.

Every figure stands beside the machine's own floor, measured in the same run and interleaved with it.  Every answer is
verified by a nonce; what each sandbox executed is read back from a file in it; the engine's objects are listed in full
before and after.  Faults are injected by name, and each must end in one of two ways: the session goes on, or its lease
ends with a typed error (:mod:`sandbox.stress.faults`).

Layers: ``report`` and ``nonces`` are records and rules, ``sandbox_sources`` gives sandboxes, ``checked_session`` asks
and checks one, ``floor`` measures the bare machine, ``phases`` measures, ``faults`` breaks things, and ``stress_run``
does all of it in order.
"""

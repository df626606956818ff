"""``longshore stress``: how many sandboxes a machine can run, how fast, and whether each answer is correct.

Every figure is compared with the machine's own floor, measured in the same run and interleaved with it. Every answer
is verified by a nonce; the commands that each sandbox executed are read back from a file in it; the engine's objects
are listed in full before and after. Faults are injected by name, and each must end in one of two ways: the session
continues, or its lease ends with a typed error (:mod:`sandbox.stress.faults`).

Layers, from below: ``report`` and ``nonces`` are records and rules, ``sandbox_sources`` opens sandboxes,
``checked_session`` runs commands in one and checks the answers, ``floor`` measures the bare machine, ``phases`` and
``command_load`` measure, ``faults`` injects failures, and ``stress_run`` does all of it in order.
"""

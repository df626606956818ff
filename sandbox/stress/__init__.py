"""``python -m sandbox.stress``: how many sandboxes a machine holds, how fast, and whether each answer is right.

Every figure stands beside the machine's own floor, taken in the same run and interleaved with it.  Every answer is
verified by a nonce; what each sandbox executed is read back from a file in it; what exists on the engine is listed in
full before and after.  Faults are injected by name and each must end in one of two ways: the session goes on, or its
lease ends with a typed error (:mod:`sandbox.stress.faults`).

Who does what: ``run`` is the order of the phases, ``measure`` the phases, ``places`` where sandboxes come from,
``talk`` one session that is asked and checked, ``floor`` what the bare machine does, ``report`` what was found.
"""

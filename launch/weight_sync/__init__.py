"""Weight sync: brings published versions to the engines while everything else continues.

``transport`` brings a version's files to an engine's machine, ``rolling_update`` says when an engine may pause, the
``manager`` drives both for every engine, and ``colocation`` alternates a shared device between learner and engines.
"""

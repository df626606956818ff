"""Everything of one run that a person may ask for, by files that are followed and never read anew.

``lines`` follows a file.  ``columns``, ``steps`` and ``catalog`` hold what every trajectory, group and step came to;
``query`` filters, sorts and pages it.  ``details`` reads one trajectory where it lies, ``vocabulary`` its text,
``recordings`` its terminal, ``activity`` what processes were at; ``cards`` are the runs beside.  Memory is bounded by
some hundred bytes a trajectory; no file is written, and the journal is never opened.
"""

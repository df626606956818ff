"""The command that looks into a run and steers it: what it shows (:mod:`.status`), how it asks (:mod:`.asking`)."""

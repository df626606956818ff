"""The command ``longshore ctl``: shows a run (:mod:`.status`) and sends it requests (:mod:`.request_client`)."""
